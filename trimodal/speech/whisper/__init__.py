"""The arithmetic round a Whisper model, in numpy."""
