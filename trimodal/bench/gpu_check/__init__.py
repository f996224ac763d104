"""Measures the wheels-only GPU profile on a GPU machine and writes a report."""
