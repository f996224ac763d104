"""Defines the commands of operators: check, fleet, top, tune."""
