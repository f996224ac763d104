"""Runs Whisper in plain torch, and holds the decode loop that TensorRT shares: on CUDA, or on the CPU."""
