"""OpenVINO GenAI's continuous batching as an engine."""
