"""Shows what was measured: on the console, as files, and as one HTML page that needs nothing else."""
