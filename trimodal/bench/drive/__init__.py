"""Opens what a load test of each kind is sent to, runs it, and hands back what was measured."""
