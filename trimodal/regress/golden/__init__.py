"""Golden sets: cases and what their answers must satisfy."""
