"""Runs Whisper on two TensorRT plans."""
