"""Engines behind the embedding model."""
