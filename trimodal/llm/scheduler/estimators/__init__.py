"""Learns one number each from the engine's own requests: speed, answer length, error."""
