"""Holds the judge of trimodal's semantic cache: `onnx-int8` beside this file is the artefact."""
