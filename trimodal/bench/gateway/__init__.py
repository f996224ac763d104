"""Measures what the gateway adds to a stream of text."""
