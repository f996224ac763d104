"""Decides which stored answer serves a question that means the same."""
