"""Measures live speech: lag, streams at once, engines."""
