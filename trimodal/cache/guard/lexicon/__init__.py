"""Words the guard knows."""
