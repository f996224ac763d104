"""Starts tritonserver, watches it and stops it."""
