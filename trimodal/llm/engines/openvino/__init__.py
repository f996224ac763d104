"""Runs a language model with OpenVINO GenAI's continuous batching."""
