"""Asks a running server a golden set of requests and compares with a stored run: `trimodal regress`."""
