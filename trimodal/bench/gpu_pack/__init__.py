"""Packs wheels for a GPU machine without a network: GPU code of one architecture, in small pieces."""
