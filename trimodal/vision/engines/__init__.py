"""Runs the image classifier: ONNX Runtime, or a fake."""
