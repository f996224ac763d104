"""The guided tour behind ./scripts/demo: one act a modality, on the demo checkpoints."""
