"""Defines the commands of `trimodal`."""
