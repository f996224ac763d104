"""Many live streams: threads, locks and tensors."""
