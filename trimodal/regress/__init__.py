"""Asks a running server a golden set and compares with a stored run: `trimodal regress`."""
