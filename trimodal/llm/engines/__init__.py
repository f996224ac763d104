"""Engines behind the llm, one Protocol."""
