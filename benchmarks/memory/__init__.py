"""Measures the memory of the whole server beside servers of one modality each."""
