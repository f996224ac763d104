"""Judges by the audio whether a speaker has finished a turn, or only pauses in it."""
