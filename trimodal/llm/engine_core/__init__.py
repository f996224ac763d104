"""The engine's own process, and the server's end of the pipe to it."""
