"""Compares the answers and latencies of two runs."""
