"""Labels images in three steps: prepare, classify, rank."""
