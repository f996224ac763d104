"""The commands of `trimodal bench`."""
