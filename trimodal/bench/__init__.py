"""Sends load to the served models, beside bare engines and other servers: `trimodal bench`.

Absolute figures of a shared machine drift; so sides take turns, and what is claimed is their ratio.
"""
