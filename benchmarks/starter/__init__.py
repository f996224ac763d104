"""Measures what the starter set answers."""
