"""Serves Whisper as guides do: FastAPI, and one call of faster-whisper's `transcribe` for each request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from fastapi import Depends, FastAPI, Request

from trimodal.audio.values import SAMPLE_RATE
from trimodal.bench.common.whisper import open_whisper


async def body(request: Request) -> bytes:
    return await request.body()


def make_app(directory: str, device: str, beam_size: int) -> FastAPI:
    """Opens a CTranslate2 model, on as many threads as faster-whisper takes by itself.

    A window is decoded once, as by our engine: with the same beam, without another temperature, up to as many
    tokens. It makes no times, of words neither, which ours gives: from the last one on it would decode again.

    Raises:
        ArtefactError: no such model is in the directory.
    """
    whisper = open_whisper(Path(directory), device, threads=0)
    times = range(whisper.tokenizer.timestamp_begin, whisper.model.hf_tokenizer.get_vocab_size())
    app = FastAPI()

    @app.post("/transcribe")
    def transcribe(data: Annotated[bytes, Depends(body)]) -> dict[str, str]:
        samples = np.frombuffer(data, np.float32)
        segments, _ = whisper.model.transcribe(
            samples,
            language="en",
            beam_size=beam_size,
            temperature=0.0,
            without_timestamps=True,
            suppress_tokens=[*whisper.never_made, *times],
            max_new_tokens=whisper.most_new(len(samples) / SAMPLE_RATE),
        )
        return {"text": "".join(segment.text for segment in segments).strip()}

    return app
