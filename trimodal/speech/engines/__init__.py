"""Runs Whisper behind one protocol: CTranslate2, ONNX Runtime, TensorRT, or a fake."""
