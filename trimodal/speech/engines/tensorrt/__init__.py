"""Whisper on TensorRT plans."""
