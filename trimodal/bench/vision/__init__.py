"""Measures the image pipeline beside its bare engine."""
