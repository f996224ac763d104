"""Hears a session's audio: decoded, cut into turns, sent to the speech model."""
