"""Classifies images in three steps of one ensemble: preprocess, classify, rank."""
