"""Fuzzing: hostile input made of bytes, our parsers that take it, and the served stack that takes it."""
