"""Measures the language model beside its bare engine."""
