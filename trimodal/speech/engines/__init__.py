"""Runs Whisper behind one protocol: CTranslate2, ONNX Runtime, torch, TensorRT, or a fake."""
