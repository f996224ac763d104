"""Measures the served models beside their bare engines, in one run on one machine.

Absolute figures of a shared machine drift; so the two sides take turns, and what is
claimed is their ratio.
"""
