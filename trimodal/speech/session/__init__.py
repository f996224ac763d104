"""Computes one live stream: buffer, voice activity, policy, transcript; no threads."""
