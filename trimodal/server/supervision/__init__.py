"""Loads a model again whose process died; the health page."""
