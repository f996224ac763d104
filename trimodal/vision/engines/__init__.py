"""Engines behind the image classifier."""
