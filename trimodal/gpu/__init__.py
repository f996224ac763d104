"""What a GPU machine is and what was built for it: devices, cards, and whether an engine fits."""
