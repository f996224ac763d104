"""Makes the tables of docs/benchmarks*.md: python -m benchmarks.NAME from the repository's root."""
