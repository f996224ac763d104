"""Runs a language model with TensorRT-LLM's executor."""
