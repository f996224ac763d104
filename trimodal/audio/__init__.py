"""Reads audio files, writes captions, and defines audio samples and timed words."""
