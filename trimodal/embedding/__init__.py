"""Turns text into vectors of unit length."""
