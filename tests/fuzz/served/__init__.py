"""Fuzzing of a served stack: the gateway, Triton's gRPC and HTTP, sequences and sockets, and who judges."""
