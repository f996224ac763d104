"""Defines the commands of operators: check, top, tune, versions."""
