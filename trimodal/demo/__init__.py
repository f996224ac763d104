"""Shows every modality on the demo models: `trimodal demo`."""
