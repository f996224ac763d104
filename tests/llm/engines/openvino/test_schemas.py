"""Answers of SmolLM2 at temperature 1 to the schemas that clients send: each strict one is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.llm.structured.json_schema.test_sentences import form_of, validator
from tests.llm.structured.schemas import SCHEMAS
from trimodal.llm.engines.protocol import EngineRequest, Sampling, open_engine
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import CheckpointTokenizer

pytestmark = [pytest.mark.build, pytest.mark.slow]
TOKENS = 300
ATTEMPTS = 3  # as the service makes


def test_strict_schemas_are_kept(smollm2: Path) -> None:
    """Of those that only a whole answer tells, some may be given up, by the keyword."""
    tokenizer = CheckpointTokenizer(smollm2)
    engine = open_engine(LlmSettings(artefact=str(smollm2), num_kv_blocks=1024))
    left, ended, wrong = dict(enumerate(SCHEMAS)), {}, {}
    try:
        for attempt in range(ATTEMPTS):
            texts = dict.fromkeys(left, "")
            for number, name in left.items():
                asked = (
                    f"Invent something and answer in JSON of this schema: {json.dumps(SCHEMAS[name])[:400]}"
                )
                prompt = tokenizer.encode(tokenizer.render([{"role": "user", "content": asked}]))
                sampling = Sampling(TOKENS, 1.0, seed=attempt, grammar=form_of(SCHEMAS[name]).grammar)
                engine.add(EngineRequest(number, prompt, sampling))
            made: dict[int, list[int]] = {number: [] for number in left}
            while engine.has_work():
                for output in engine.step():
                    made[output.id] += output.token_ids
                    ended[output.id] = output.finish_reason
            for number, name in list(left.items()):
                texts[number] = tokenizer.decode_whole(made[number])
                wrong[name] = form_of(SCHEMAS[name]).problem(texts[number]) or str(ended[number])
                if wrong[name] == "stop":
                    assert list(validator(SCHEMAS[name]).iter_errors(json.loads(texts[number]))) == []
                    del left[number], wrong[name]
    finally:
        engine.close()
    print(f"{len(SCHEMAS) - len(left)} of {len(SCHEMAS)} valid; {wrong}")
    assert all(form_of(SCHEMAS[name]).is_checked and "broke '" in wrong[name] for name in left.values()), (
        wrong
    )
    assert len(left) <= 5
