"""Stored answers in front of generation: exact and semantic lookup, the guard, and the stores."""
