"""One live stream as pure computation."""
