"""Shows what a load test measured: as tables, and as files."""
