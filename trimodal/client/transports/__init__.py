"""Carries requests to a server: over gRPC, or to functions in tests."""
