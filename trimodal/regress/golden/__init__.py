"""Reads golden sets: cases, and what their answers must satisfy."""
