"""What every bench shares: load, samples, counters, the bare side."""
