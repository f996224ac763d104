"""Takes one request from tensors to text, in the server's process."""
