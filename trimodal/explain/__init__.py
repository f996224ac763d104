"""Says where the time of one request went: `trimodal explain`."""
