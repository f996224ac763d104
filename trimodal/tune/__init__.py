"""Searches the knobs of a model or a pipeline on servers of its own: `trimodal tune`."""
