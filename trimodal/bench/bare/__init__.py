"""Runs engines without a server: what a served model is held against in the same run."""
