"""Measures a GPU machine in parts, each in a process of its own, and writes a report."""
