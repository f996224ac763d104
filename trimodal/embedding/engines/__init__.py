"""Runs the sentence embedder: ONNX Runtime, or a fake."""
