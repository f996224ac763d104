"""Reads what a checkpoint's generation_config.json says of sampling: the defaults of what requests leave out.

The rule is vLLM's (`--generation-config auto`): these five fields, each alone; and transformers': `do_sample`
false is greedy whatever temperature is named, true without one is 1.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trimodal.errors import ArtefactError

GENERATION_CONFIG = "generation_config.json"


@dataclass(frozen=True)
class SamplingDefaults:
    """As `Sampling` has them; a checkpoint that says nothing is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


NONE = SamplingDefaults()
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 10), "top_p": (0, 1), "top_k": (-1, 1 << 20), "min_p": (0, 0.999),
    "repetition_penalty": (1e-3, 10),
}  # fmt: skip


def read_defaults(directory: Path) -> SamplingDefaults:
    """The defaults of the checkpoint that an artefact was built of.

    Raises:
        ArtefactError: the file is no JSON object, or a value is none that sampling can have.
    """
    path = directory / GENERATION_CONFIG
    if not path.is_file():
        return NONE
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ArtefactError(f"{path} is not a JSON object: generation_config=none goes without it")
    found = {name: _value(path, name, given[name]) for name in asdict(NONE) if given.get(name) is not None}
    if not given.get("do_sample", True):
        found["temperature"] = 0.0
    elif given.get("do_sample"):
        found.setdefault("temperature", 1.0)
    defaults = replace(NONE, **found)
    # 0 in some files stands for "no filter".
    return replace(defaults, top_p=defaults.top_p or 1.0, top_k=max(0, defaults.top_k))


def _value(path: Path, name: str, value: Any) -> Any:
    low, high = _RANGES[name]
    number = isinstance(value, int if name == "top_k" else int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ArtefactError(
            f"{path}: {name} is {value!r}, {low:g} to {high:g} are taken; generation_config=none goes without"
        )
    return value
