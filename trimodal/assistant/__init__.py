"""Answers a question that is typed, spoken or about an image, by calling the other models."""
