"""Calls that stream: answers, live speech, the assistant."""
