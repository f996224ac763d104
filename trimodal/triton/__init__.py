"""What runs inside Triton's Python backend."""
