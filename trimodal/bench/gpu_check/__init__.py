"""Measures profile `cuda` on a GPU machine and writes a report."""
