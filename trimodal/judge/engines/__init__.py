"""Runs the judge: ONNX Runtime, or a fake."""
