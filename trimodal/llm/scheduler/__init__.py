"""Decides which request starts when, and which is refused: priorities, deadlines, predicted TTFT."""
