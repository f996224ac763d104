"""Shows a waterfall: in the terminal, as a section of an HTML report, as JSON."""
