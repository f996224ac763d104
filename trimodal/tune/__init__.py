"""Searches the knobs of a model or a pipeline on a live server: `trimodal tune`."""
