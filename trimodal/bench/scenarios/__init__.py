"""Runs the load test of each kind: opens what is asked, sends the load, hands back what was measured."""
