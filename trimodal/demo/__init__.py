"""Shows every modality on the starter set: `trimodal demo`."""
