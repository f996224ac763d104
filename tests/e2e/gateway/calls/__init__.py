"""Calls of OpenAI's package to the demo server: one function each, which returns what came."""
