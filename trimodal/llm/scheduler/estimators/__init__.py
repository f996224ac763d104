"""Learns one number each from the engine's own requests: latency, answer length, error."""
