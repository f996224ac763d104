"""Shows figures and findings: as tables on the console, as plots, as JSON, and as one HTML page."""
