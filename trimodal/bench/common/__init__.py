"""Parts that the benches share: load, samples, counters, the bare side."""
