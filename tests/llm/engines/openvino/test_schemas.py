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
TOKENS = 200
ATTEMPTS = 3  # as the service makes
SCHEMAS_BY_NUMBER = dict(enumerate(SCHEMAS))


def test_strict_schemas_are_kept(smollm2: Path) -> None:
    """Those that only a whole answer tells may be given up, by the keyword; those without end, cut."""
    tokenizer = CheckpointTokenizer(smollm2)
    asked = "Invent something and answer in JSON."
    prompt = tokenizer.encode(tokenizer.render([{"role": "user", "content": asked}]))
    forms = {name: form_of(schema) for name, schema in SCHEMAS.items()}
    left, wrong = dict(enumerate(SCHEMAS)), dict.fromkeys(SCHEMAS, "")
    engine = open_engine(LlmSettings(artefact=str(smollm2), num_kv_blocks=1024))
    try:
        for attempt in range(ATTEMPTS):
            for number, name in left.items():
                sampling = Sampling(TOKENS, 1.0, seed=attempt, grammar=forms[name].grammar)
                engine.add(EngineRequest(number, prompt, sampling))
            made: dict[int, list[int]] = {number: [] for number in left}
            while engine.has_work():
                for output in engine.step():
                    made[output.id] += output.token_ids
                    wrong[SCHEMAS_BY_NUMBER[output.id]] = output.finish_reason or ""
            for number, name in list(left.items()):
                text = tokenizer.decode_whole(made[number])
                if wrong[name] == "stop":
                    wrong[name] = forms[name].problem(text)
                    if not wrong[name]:
                        assert list(validator(SCHEMAS[name]).iter_errors(json.loads(text))) == []
                        del left[number]
    finally:
        engine.close()
    broken = {name: wrong[name] for name in left.values()}
    print(f"{len(SCHEMAS) - len(left)} of {len(SCHEMAS)} valid; {broken}")
    assert all("broke '" in one or one == "length" for one in broken.values()), broken
    assert len(left) <= 5
