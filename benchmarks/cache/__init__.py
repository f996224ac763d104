"""Benchmarks of the answer cache."""
