"""Judges whether two questions ask for the same: a normaliser, and a model behind Triton."""
