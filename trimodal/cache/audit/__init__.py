"""Checks on live traffic how often the semantic layer is wrong."""
