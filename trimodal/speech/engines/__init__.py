"""Runs Whisper behind one protocol: CTranslate2, TensorRT, or a fake."""
