"""Serves /v1/responses: answers with their tools and events, and the store that talks go on from."""
