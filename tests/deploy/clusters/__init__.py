"""Holds the objects of deploy/ for clusters against published schemas and against the project."""
