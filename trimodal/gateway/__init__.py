"""Serves OpenAI's HTTP API in front of Triton: `trimodal gateway`."""
