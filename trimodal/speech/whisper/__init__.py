"""Computes what surrounds a Whisper model, in numpy: features, tokens, alignment."""
