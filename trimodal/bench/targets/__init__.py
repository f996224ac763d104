"""Sends one request of a kind and says what it did: text over gRPC or HTTP, images, speech, vectors.

A target needs a server's address only, ours or, for text over HTTP, any that speaks Triton's generate
extension or OpenAI's API.
"""
