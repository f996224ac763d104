"""A peer without a model: an ASGI application as `make_app` of a real one returns it."""

import json
import sys

from trimodal.errors import OperatorError


def make_app(word="word", refuse="", fail=""):
    if refuse:
        raise OperatorError(refuse)
    if fail:
        raise RuntimeError(fail)
    print("what a library prints is no port")

    async def app(scope, receive, send):
        assert scope["type"] == "http"
        body = (await receive())["body"]
        if scope["path"] == "/broken":
            print("the stub is broken", file=sys.stderr, flush=True)
        kind = b"text/event-stream" if scope["path"] == "/generate" else b"application/json"
        status = 500 if scope["path"] == "/broken" else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        for part in answer(scope["path"], body):
            await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def answer(path, body):
        if path != "/generate":
            return [json.dumps({"bytes": len(body)})]
        asked = json.loads(body)
        texts = [{"text": word} for _ in asked["token_ids"][: asked["max_tokens"]]]
        return [f"data: {json.dumps(event)}\n\n" for event in [*texts, {"tokens": len(texts)}]] + [
            "data: [DONE]\n\n"
        ]

    return app
