"""Keeps many live streams: threads, locks and tensors."""
