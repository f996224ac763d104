"""Stores answers behind one protocol: memory, SQLite, Redis, Qdrant."""
