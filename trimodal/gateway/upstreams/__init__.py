"""Spreads requests over several Tritons."""
