"""Finds stored answers before the engine is asked: exact and semantic lookup, and when to give up."""
