"""Asks a server the cases of a golden set."""
