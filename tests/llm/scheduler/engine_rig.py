"""A speed model that has seen an engine of known speed, without a scheduler around it."""

from __future__ import annotations

import random

from trimodal.llm.engines.protocol import EngineInfo
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier

STEP, STREAM, TOKEN = 0.010, 0.0005, 0.00005
"""Seconds of a step: at least, a stream, a prompt token."""


def settings(**values: object) -> LlmSettings:
    return LlmSettings.model_validate({"engine": "fake", **values})


def info(blocks: int = 1000, seqs: int = 4) -> EngineInfo:
    return EngineInfo("fake", blocks, 32, seqs, 100_000)


def ticket(id: int, prompt: int = 100, tokens: int = 50, tier: Tier | None = None, name: str = "a") -> Ticket:
    made = Ticket(
        id, prompt, tokens, tier or Tier(), name, uncached=prompt, blocks=-(-(prompt + tokens) // 32)
    )
    made.priority = made.tier.priority
    return made


def practised(streams: int = 4, rounds: int = 60, factor: float = 1.0, seed: int = 0) -> LatencyModel:
    """A model that has seen an engine with so many streams at most; `factor`: of all its times."""
    speed, now, draw = LatencyModel(), 1.0, random.Random(seed)
    running: list[Ticket] = []
    for id in range(rounds):
        if len(running) >= draw.randint(1, streams):
            speed.gone(running.pop(0))
        new = ticket(id, draw.randint(10, 400))
        new.started = now
        met = len(running)
        speed.started(new)
        now += factor * (STEP + STREAM * met + TOKEN * new.prompt_tokens)
        new.first_token = now
        speed.first(new, now)
        for each in running:
            speed.went_on(each, 1, now)
        running.append(new)
        for _ in range(16):
            now += factor * (STEP + STREAM * len(running))
            for each in running:
                speed.went_on(each, 1, now)
    for each in running:
        speed.gone(each)
    return speed
