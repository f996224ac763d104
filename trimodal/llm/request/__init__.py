"""Defines what is asked of the llm and what it answers."""
