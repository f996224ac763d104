"""Stores of answers, one Protocol: memory, SQLite, Redis, Qdrant."""
