"""Serves the web page at /: chat, live captions and status, without anything from elsewhere."""
