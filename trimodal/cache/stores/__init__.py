"""Stores answers behind one protocol: SQLite, Redis."""
