"""Runs an engine in a process of its own, talks to it, and restarts it."""
