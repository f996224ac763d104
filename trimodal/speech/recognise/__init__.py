"""Batches of windows to words with times."""
