"""Holds deploy/helm and deploy/kubernetes against the project and against published schemas."""
