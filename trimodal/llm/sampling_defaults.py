"""Reads what a checkpoint's generation_config.json says of sampling: the defaults of what requests leave out.

The rule is vLLM's (`--generation-config auto`): these five fields, each alone; and transformers': `do_sample`
false is greedy whatever temperature is named, true without one is 1.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimodal.errors import ArtefactError
from trimodal.settings import describe

GENERATION_CONFIG = "generation_config.json"


class SamplingDefaults(BaseModel):
    """As `Sampling` has them; a checkpoint that says nothing is greedy."""

    model_config = ConfigDict(frozen=True, strict=True)

    temperature: float = Field(0.0, ge=0, le=10)
    top_p: float = Field(1.0, ge=0, le=1)
    top_k: int = Field(0, ge=-1, le=1 << 20)
    min_p: float = Field(0.0, ge=0, le=0.999)
    repetition_penalty: float = Field(1.0, ge=1e-3, le=10)


def read_defaults(directory: Path) -> SamplingDefaults:
    """The defaults of the checkpoint that an artefact was built of.

    Raises:
        ArtefactError: the file is no JSON object, or a value is none that sampling can have.
    """
    path = directory / GENERATION_CONFIG
    if not path.is_file():
        return SamplingDefaults()
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ArtefactError(f"{path} is not a JSON object: generation_config=none goes without it")
    found = {name: value for name, value in given.items() if value is not None}
    if given.get("do_sample"):
        found.setdefault("temperature", 1.0)
    try:
        defaults = SamplingDefaults.model_validate(found)
    except ValidationError as error:
        problem = describe(error, SamplingDefaults)
        raise ArtefactError(f"{path}: {problem}; generation_config=none goes without it") from None
    # 0 in some files stands for "no filter".
    update: dict[str, float] = {"top_p": defaults.top_p or 1.0, "top_k": max(0, defaults.top_k)}
    if not given.get("do_sample", True):
        update["temperature"] = 0.0
    return defaults.model_copy(update=update)
