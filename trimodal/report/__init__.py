"""Shows figures and findings: as tables on the console, and as JSON."""
