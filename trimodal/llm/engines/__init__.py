"""Runs language models behind one protocol: OpenVINO, vLLM, TensorRT-LLM, or a fake."""
