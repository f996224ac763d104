"""The commands of `trimodal`."""
