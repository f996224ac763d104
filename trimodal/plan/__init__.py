"""Calculates which language model fits on which GPU."""
