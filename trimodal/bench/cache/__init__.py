"""Measures the answer cache: accuracy, latency and stores."""
