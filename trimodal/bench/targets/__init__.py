"""Sends one request of a kind and says what it did: text over gRPC or HTTP, images, speech, vectors."""
