"""Judges whether two questions ask for the same: a model behind Triton, and what it reads and does not."""
