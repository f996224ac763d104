"""Measures the answer cache: how often it is wrong, its latency and its stores."""
