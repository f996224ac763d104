"""Reads a question into terms that can be compared."""
