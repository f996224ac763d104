"""Judges whether two questions ask for the same."""
