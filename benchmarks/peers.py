"""Serves a checkpoint as guides for newcomers do, with FastAPI: the peers of the table "Beside FastAPI".

    python -m benchmarks.peers llm CHECKPOINT --dtype bfloat16 --port 8100
    python -m benchmarks.peers vision ARTEFACT CHECKPOINT --port 8101
    ab -n 500 -c 16 -p picture.jpg http://127.0.0.1:8101/classify

The llm speaks OpenAI's API: `trimodal bench llm --beside http://127.0.0.1:8100/v1` asks it in turn with ours.
Libraries take as many threads as they do by themselves.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import numpy as np
import typer
import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.responses import StreamingResponse
from PIL import Image

from benchmarks.torchvision_reference import pixels as torchvision
from trimodal.build_support import resolve_checkpoint
from trimodal.vision.artefact import InputSpec, read_classifier
from trimodal.vision.preprocess import FILTERS

app = typer.Typer(add_completion=False, no_args_is_help=True, help=(__doc__ or "").split("\n")[0])

Port = Annotated[int, typer.Option(min=1, max=65535)]


async def body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(body)]


@app.command()
def llm(checkpoint: Path, dtype: str = "bfloat16", port: Port = 8100) -> None:
    """Serves transformers: a thread with generate() for each request, its streamer's text as events."""
    uvicorn.run(llm_app(checkpoint, dtype), host="127.0.0.1", port=port, log_level="warning")


def llm_app(checkpoint: Path, dtype: str) -> FastAPI:
    """Answers are greedy; with `ignore_eos` they have exactly `max_tokens` tokens."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer

    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype)).eval()
    end = model.generation_config.eos_token_id
    server = FastAPI()

    @server.post("/v1/chat/completions")
    def complete(asked: dict[str, Any]) -> StreamingResponse:
        text = "\n".join(message["content"] for message in asked["messages"])
        if tokenizer.chat_template:
            text = tokenizer.apply_chat_template(
                asked["messages"], tokenize=False, add_generation_prompt=True
            )
        prompt = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
        counts: list[int] = []

        def work() -> None:
            try:
                made = model.generate(
                    input_ids=prompt,
                    attention_mask=torch.ones_like(prompt),
                    max_new_tokens=asked["max_tokens"],
                    do_sample=False,
                    pad_token_id=0,
                    eos_token_id=None if asked.get("ignore_eos") else end,
                    streamer=streamer,
                )
                counts.append(made.shape[1] - prompt.shape[1])
            finally:
                streamer.end()  # else its reader would wait for ever where generate() fails

        def events() -> Iterator[str]:
            thread = Thread(target=work)
            thread.start()
            for piece in streamer:
                yield f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': piece}}]})}\n\n"
            thread.join()
            usage = {"prompt_tokens": prompt.shape[1], "completion_tokens": sum(counts)}
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return server


@app.command()
def vision(artefact: Path, checkpoint: str, port: Port = 8101) -> None:
    """Serves the network of a checkpoint in torch, float32, one image a call; POST /classify."""
    uvicorn.run(vision_app(artefact, checkpoint), host="127.0.0.1", port=port, log_level="warning")


def vision_app(artefact: Path, checkpoint: str) -> FastAPI:
    """Classifies as the checkpoint does, with the input and the labels of what was built of it."""
    import torch

    sys.path.insert(0, str(Path(__file__).parents[1] / "build"))
    from steps.vision import classifier as checkpoints

    classifier = read_classifier(artefact)
    network = checkpoints.read_classifier(resolve_checkpoint(checkpoint)).network
    mean, std = (np.array(values, np.float32) for values in (classifier.input.mean, classifier.input.std))
    server = FastAPI()

    @server.post("/classify")
    def classify(data: Body) -> dict[str, float]:
        image = fit(Image.open(io.BytesIO(data)).convert("RGB"), classifier.input)
        pixels = (np.asarray(image, np.float32) / 255 - mean) / std
        with torch.inference_mode():
            logits = network(torch.from_numpy(pixels.transpose(2, 0, 1)[None]))
            best = logits.softmax(1)[0].topk(min(5, len(classifier.labels)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return {classifier.labels[index]: score for index, score in pairs}

    return server


def fit(image: Image.Image, spec: InputSpec) -> Image.Image:
    """Fits an image to the network's height and width: resized, and for `crop` the centre of it."""
    if spec.resize == "exact":
        return image.resize((spec.width, spec.height), FILTERS[spec.filter])
    resized = torchvision.resize(image, spec.shorter, FILTERS[spec.filter])
    return torchvision.center_crop(resized, spec.height, spec.width)


if __name__ == "__main__":
    app()
