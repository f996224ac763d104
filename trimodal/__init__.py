"""Serves text, images and live audio on NVIDIA Triton.

Nothing in this package imports Triton's Python backend: the glue in
model_repository/*/1/model.py does, and hands plain values over.
"""

__version__ = "0.1.0"
