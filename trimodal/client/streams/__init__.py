"""Defines the calls that stream: answers, live speech, the assistant."""
