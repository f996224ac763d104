"""Decodes Whisper where encoder and decoder are graphs that somebody else runs."""
