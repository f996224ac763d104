"""Serves /v1/realtime: live audio over a WebSocket, in OpenAI's dialect and in vLLM's."""
