"""Measures the language model as it is used: clients that leave, drafting on real text."""
