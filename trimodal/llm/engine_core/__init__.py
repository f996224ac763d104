"""The engine's own process, and the server's end of the connection to it."""
