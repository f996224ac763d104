"""Translates OpenAI's endpoints, each to one call of the client."""
