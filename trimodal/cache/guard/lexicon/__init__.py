"""Holds the words that the guard knows."""
