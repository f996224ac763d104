"""TensorRT-LLM's executor as an engine."""
