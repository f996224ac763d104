"""Makes the load of a trial: what is sent to a model, and how much of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimodal.audio.values import SAMPLE_RATE
from trimodal.bench.load.generator import Arrivals, Closed, Send, poisson
from trimodal.bench.load.lengths import parse_lengths
from trimodal.bench.load.records import Record
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.media import embedding, speech, vision
from trimodal.bench.targets.questions import Mix, Questions
from trimodal.bench.targets.taking import sender
from trimodal.client import Client
from trimodal.client.transports.base import Request, Timeouts, Transport
from trimodal.errors import SettingsError
from trimodal.paths import data_directory

_RECORDINGS = data_directory() / "samples" / "speech"
TIMEOUT_S = 20.0  # of a request
STREAM_S = 20.0  # of a live stream, as `trimodal bench speech` has it
_VARIABLE = 8  # length of a dimension that the configuration leaves open
# Attribute of a workload → the kinds of models that it is of, and how to say that.
_OF = {
    "batch": ({"vision", "embedding", "tensors"}, "images, texts and rows"),
    "prompt_tokens": ({"llm", "embedding"}, "prompts and texts"),
    "max_tokens": ({"llm"}, "answers"),
    "pace": ({"speech"}, "live streams"),
}


@dataclass(frozen=True)
class Workload:
    """What is sent.

    Attributes:
        concurrency: clients that each send the next request when the last one is answered.
        rate: requests a second of an open loop instead; 0: a closed loop.
        batch: images, texts or rows in a request.
        pace: of speech: 1 as it was spoken; 0 as fast as the server takes it, where words have no lag.
    """

    concurrency: int = 8
    rate: float = 0.0
    batch: int = 1
    prompt_tokens: str = "64"
    max_tokens: str = "32"
    pace: float = 1.0

    def arrivals(self, seed: int) -> Arrivals:
        return poisson(self.rate, seed) if self.rate else Closed(self.concurrency)

    def check(self, models: Mapping[str, str]) -> None:
        """Raises: SettingsError: something is given that none of these models, name → kind, has."""
        for name, (of, known) in _OF.items():
            given = getattr(self, name) != type(self).__dataclass_fields__[name].default
            if given and not of & set(models.values()):
                option = name.replace("_", "-")
                raise SettingsError(f"--{option} is of {known}: leave it out for {', '.join(models)}")

    def __str__(self) -> str:
        return f"{self.rate:g} requests/s" if self.rate else f"{self.concurrency} clients in a closed loop"


def kind_of(config: Any) -> str:
    """vision, llm, embedding or speech, by the tensors that it takes and gives; else tensors; empty: none."""
    inputs, outputs = ({one.name for one in some} for some in (config.input, config.output))
    if "stage" in outputs:
        return ""  # the assistant: tune its models one by one, or together by a mix
    if "image" in inputs and "labels" in outputs:
        return "vision"
    if {"audio", "committed"} <= inputs | outputs:
        return "speech"
    if config.HasField("sequence_batching"):
        return ""
    if config.model_transaction_policy.decoupled:
        return "llm" if {"text_input", "text_output"} <= inputs | outputs else ""
    return "embedding" if inputs == {"text_input"} and "embedding" in outputs else "tensors"


def target_of(
    config: Any,
    client: Client,
    transport: Transport,
    workload: Workload,
    stream_s: float,
    *,
    sizes: int,
    texts: int,
) -> Send:
    """What sends the load of a round.

    Args:
        stream_s: live streams end after so many seconds.
        sizes: seed of the lengths of prompts and answers.
        texts: seed of what is asked: caches would answer what was asked before.

    Raises: SettingsError: no load is known for such a model.
    """
    kind, model, timeout = kind_of(config), str(config.name), TIMEOUT_S
    if kind == "vision":
        from trimodal.bench.samples import jpegs

        return vision(client, jpegs(224, 224), batch=workload.batch, timeout=timeout, model=model)
    if kind in ("llm", "embedding"):
        prompt = parse_lengths(workload.prompt_tokens, "--prompt-tokens")
        mix = Mix(prompt, parse_lengths(workload.max_tokens, "--max-tokens"))
        questions = Questions(mix, texts, sizes=sizes)
        if kind == "embedding":
            return embedding(client, questions, batch=workload.batch, timeout=timeout, model=model)
        return GrpcLlm(client, questions, timeout=timeout, model=model).send
    if kind == "speech":
        from trimodal.bench.samples import spoken_streams

        most = round(stream_s * SAMPLE_RATE)
        recordings = [one.samples[:most] for one in spoken_streams(_RECORDINGS, STREAM_S)]
        return speech(client, recordings, pace=workload.pace, timeout=max(timeout, 60.0), model=model)
    if kind == "tensors":
        return random_tensors(transport, config, workload.batch, timeout)
    raise SettingsError(f"model {model}: no load is known for it; tune the models that it calls")


def random_tensors(transport: Transport, config: Any, batch: int, timeout: float) -> Send:
    """A model of whatever kind that answers once: zeros and ones in its tensors, or the word `text`."""
    from tritonclient.grpc import model_config_pb2
    from tritonclient.utils import triton_to_np_dtype

    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {}
    for one in config.input:
        dtype = model_config_pb2.DataType.Name(one.data_type)
        if one.optional:
            continue
        shape = [_VARIABLE if side < 0 else side for side in one.dims]
        rows = [batch, *shape] if config.max_batch_size else shape
        if dtype == "TYPE_STRING":
            inputs[one.name] = np.full(rows, b"text", dtype=object)
        elif known := triton_to_np_dtype(dtype.removeprefix("TYPE_")):
            inputs[one.name] = rng.integers(0, 2, rows).astype(known)
        else:
            raise SettingsError(f"model {config.name}: no load is known for input {one.name} ({dtype})")

    async def ask(record: Record, number: int) -> None:
        record.items = batch
        await transport.infer(Request(str(config.name), inputs), Timeouts(total=timeout))
        record.piece()

    return sender(ask)
