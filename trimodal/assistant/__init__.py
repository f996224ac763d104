"""The assistant: what is said and seen becomes a question, answered by way of the other models."""
