"""Shows what a load test measured: as tables and plots, and as files."""
