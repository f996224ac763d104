"""Turns batches of windows into words with times."""
