"""Measures the language model's engine alone: python -m benchmarks.llm.NAME."""
