"""Runs Whisper in OpenVINO with the weights of a CTranslate2 model."""
