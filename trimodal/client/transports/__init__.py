"""Ways to reach a server: gRPC, and a fake for tests."""
