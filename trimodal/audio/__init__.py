"""Audio samples, files, microphones and captions."""
