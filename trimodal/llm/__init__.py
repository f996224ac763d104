"""Streams generated text: requests, scheduling, engines, and the service that owns them."""
