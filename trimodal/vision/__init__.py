"""Classifies images in three steps, preprocess, classify, rank: of one model, or a model each."""
