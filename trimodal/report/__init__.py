"""Shows figures: as tables on the console, as plots, and as one HTML page that needs nothing else."""
