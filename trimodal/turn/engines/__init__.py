"""Runs the model of turns: ONNX Runtime, or a fake."""
