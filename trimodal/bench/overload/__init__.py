"""Measures goodput when more is asked than the engine can answer."""
