"""Reads a model repository and says what a server would refuse, and what would hurt once it serves."""
