"""What `trimodal demo` shows: one act a modality, on the demo models."""
