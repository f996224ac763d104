"""Speaks OpenAI's Realtime API: transcription sessions, and conversations answered in text."""
