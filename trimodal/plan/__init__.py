"""Which model fits on which card."""
