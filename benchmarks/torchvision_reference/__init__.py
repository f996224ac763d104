"""Computes what torchvision does, to compare with: it does not load beside this torch."""
