"""Opens ONNX Runtime sessions and GPU devices, for every task."""
