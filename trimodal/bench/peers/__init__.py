"""Serves the same models as guides for newcomers do, with FastAPI and one call a request: benches compare."""
