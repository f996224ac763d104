"""Engines behind Whisper, one Protocol."""
