"""Compares the answers, latencies and cache outcomes of two runs."""
