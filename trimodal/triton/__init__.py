"""Talks to Triton's Python backend: batches, responses, calls of other models, metrics."""
