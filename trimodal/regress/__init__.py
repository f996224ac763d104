"""A golden set of requests, asked of a running server and compared with a stored run: `trimodal regress`.

It starts no server, and knows of models only what the client knows.
"""
