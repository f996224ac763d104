"""Holds the labelled pairs of questions that the cache is measured on."""
