"""Defines the commands of `trimodal bench`."""
