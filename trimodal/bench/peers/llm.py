"""Serves a causal language model as guides do: FastAPI, and a thread with `generate()` for each request.

The text of transformers' TextIteratorStreamer goes out as server-sent events. Prompts come as token ids, so
that all sides of a bench have the same ones; answers are greedy and have exactly as many tokens as were asked
for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Thread
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel


class Question(BaseModel):
    """Body of a request."""

    token_ids: list[int]
    max_tokens: int


def make_app(checkpoint: str, dtype: str) -> FastAPI:
    """Opens the checkpoint's directory in torch's `dtype`, on as many threads as torch takes by itself."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer

    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype)).eval()
    model.generation_config.eos_token_id = None  # no token ends an answer before max_tokens
    app = FastAPI()

    @app.post("/generate")
    def generate(question: Question) -> StreamingResponse:
        prompt = torch.tensor([question.token_ids])
        streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
        counts: list[int] = []

        def work() -> None:
            try:
                made = model.generate(
                    input_ids=prompt,
                    attention_mask=torch.ones_like(prompt),
                    max_new_tokens=question.max_tokens,
                    do_sample=False,
                    pad_token_id=0,
                    streamer=streamer,
                )
                counts.append(made.shape[1] - prompt.shape[1])
            except BaseException:
                streamer.end()  # else its reader would wait for ever
                raise

        def events() -> Iterator[str]:
            thread = Thread(target=work)
            thread.start()
            for text in streamer:
                yield f"data: {json.dumps({'text': text})}\n\n"
            thread.join()
            yield f"data: {json.dumps({'tokens': sum(counts)})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return app
