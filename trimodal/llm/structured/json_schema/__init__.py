"""Turns JSON Schemas into rules of a grammar, and holds answers against what a grammar cannot say."""
