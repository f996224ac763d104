"""Reads audio files and microphones, writes captions, and defines audio samples and timed words."""
