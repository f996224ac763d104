"""Embeds texts as unit vectors."""
