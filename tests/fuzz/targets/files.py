"""Files that operators edit or builds leave: configs, manifests, tiers, keys, upstreams; stored answers."""

from __future__ import annotations

import json
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.check.cases.hurting import HURTING
from tests.check.cases.refused import REFUSED
from tests.fuzz.choices import Choices
from tests.fuzz.hostile import TEXTS, dumped, spoil, spoil_bytes, text
from tests.fuzz.targets.promise import Broken, promise
from trimodal.cache.stores.base import StoreError
from trimodal.cache.stores.codec import pack, read_vectors, unpack
from trimodal.cache.values import Entry
from trimodal.check.examine import examine
from trimodal.check.findings import Target
from trimodal.check.repository import read_repository
from trimodal.check.rules import RULES
from trimodal.errors import ArtefactError, OperatorError, ServerError, SettingsError
from trimodal.gateway.keys import read_keys
from trimodal.gateway.upstreams.file import read_upstreams
from trimodal.llm.tiers import read_tiers
from trimodal.manifest import MANIFEST, read_manifest
from trimodal.repository import read_model, select_models
from trimodal.tune.fields import put_text
from trimodal.vision.artefact import read_classifier

_REPOSITORY = Path(__file__).parents[3] / "model_repository"
CONFIGS = tuple(file.read_bytes() for file in sorted(_REPOSITORY.glob("**/*.pbtxt")))
REPOSITORIES = tuple(case.broken for case in (*REFUSED, *HURTING))
_TIERS = (_REPOSITORY / "llm" / "tiers.toml").read_bytes()
_KEYS = (
    b'[[key]]\nname = "a"\nhash = "sha256:' + b"0" * 64 + b'"\nmodels = ["llm"]\nrequests_per_minute = 5\n'
)
_UPSTREAMS = b'[[upstream]]\naddress = "127.0.0.1:8001:8003"\n[[upstream]]\naddress = "b:1"\ndrain = true\n'
_MANIFEST = {
    "task": "vision",
    "runtime": "onnxruntime",
    "runtime_version": "1",
    "precision": "fp32",
    "source": "x",
    "source_sha256": "0",
    "command": "python build/vision_onnx.py",
    "shapes": {"classes": 2},
    "gpu": None,
    "profiles": [{"x": {"min": [1], "opt": [1], "max": [2]}}],
    "extra": {"pixels": "uint8", "input": {"height": 8, "width": 8, "resize": "exact", "mean": [0, 0, 0]}},
}
_ENTRY = Entry("q", "a", "stop", 1, 2, 1.0, 2.0)
_NOW = Target(release=(24, 10), slo_ms=100, cores=2, gpu_memory=1 << 30)


def run(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.pick((_config, _repository, _repository, _edit, _manifest, _classifier, _toml, _stored))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        kind(choices, Path(folder))


def _text(choices: Choices, valid: bytes) -> bytes:
    kind = choices.integer(0, 3)
    if kind == 0:
        return choices.rest()
    if kind == 1:
        return b"input { a: " * choices.pick((1, 40, 60, 3000)) + choices.pick((b"", valid))
    if kind == 2:
        return valid.replace(choices.pick((b"1", b'"llm"', b"true", b"TYPE_STRING")), _word(choices))
    return spoil_bytes(choices, valid)


def _word(choices: Choices) -> bytes:
    return choices.pick(
        (*(one.encode("utf-8", "replace") for one in TEXTS), b"-1", b"1e5", b"[1, 2]", b"{ }")
    )


def _config(choices: Choices, folder: Path) -> None:
    model = folder / choices.pick(("llm", "x"))
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_bytes(_text(choices, choices.pick(CONFIGS)))
    if choices.chance(3):
        (model / "configs").mkdir()
        (model / "configs" / "cpu.pbtxt").write_bytes(_text(choices, choices.pick(CONFIGS)))
    _examine(folder)
    with promise(ServerError, leak=False):
        read_model(folder, model.name, "cpu").parameters  # noqa: B018
        select_models(folder, (), "cpu")


def _repository(choices: Choices, folder: Path) -> None:
    """A repository that breaks one rule of the checker, and then some."""
    files = choices.pick(REPOSITORIES)
    spoilt = choices.pick(list(files))
    for path, contents in files.items():
        file = folder / path.replace("@", "")
        file.parent.mkdir(parents=True, exist_ok=True)
        valid = contents.replace("@", "").encode()
        file.write_bytes(_spoilt(choices, valid) if path == spoilt and path.endswith("txt") else valid)
    with promise(ValueError, leak=False):
        _examine(folder)


def _spoilt(choices: Choices, valid: bytes) -> bytes:
    """With one or two of its words in each other's places, taken out, or others."""
    words = re.split(rb"(\s+)", valid)
    for _ in range(choices.integer(1, 2)):
        one, other = (choices.integer(0, len(words) - 1) for _ in range(2))
        kind = choices.integer(0, 3)
        if kind == 0:
            words[one], words[other] = words[other], words[one]
        elif kind == 1:
            words[one] = words[other]
        else:
            words[one] = _word(choices) if kind == 2 else b""
    return b"".join(words)


def _examine(folder: Path) -> None:
    repository = read_repository(folder)
    for finding in examine(repository, repository.profiles, _NOW, frozenset(RULES)):
        finding.sentence.encode()


def _edit(choices: Choices, folder: Path) -> None:
    before = _text(choices, choices.pick(CONFIGS)).decode("utf-8", "replace")
    with promise(SettingsError, leak=False):
        after = put_text(before, choices.pick(("max_batch_size", "max_queue_delay_microseconds")), "8")
        put_text(after, "engine", text(choices))


def _manifest(choices: Choices, folder: Path) -> None:
    (folder / MANIFEST).write_bytes(_json(choices, _MANIFEST))
    with promise(ArtefactError, leak=False):
        read_manifest(folder, task="vision", runtime=None)


def _classifier(choices: Choices, folder: Path) -> None:
    (folder / MANIFEST).write_bytes(dumped(_MANIFEST) if choices.chance(3) else _json(choices, _MANIFEST))
    (folder / "labels.json").write_bytes(_json(choices, ["one", "two"]))
    with promise(ArtefactError, leak=False):
        read_classifier(folder)


def _json(choices: Choices, valid: object) -> bytes:
    return dumped(spoil(choices, valid)) if choices.chance(2) else spoil_bytes(choices, dumped(valid))


def _toml(choices: Choices, folder: Path) -> None:
    readers: tuple[tuple[bytes, Callable[[Path], object]], ...] = (
        (_TIERS, read_tiers),
        (_KEYS, read_keys),
        (_UPSTREAMS, read_upstreams),
    )
    valid, read = choices.pick(readers)
    file = folder / "file.toml"
    file.write_bytes(_text(choices, valid))
    with promise(OperatorError, leak=False):
        read(file)


def _stored(choices: Choices, folder: Path) -> None:
    """What a store gives back is the entry that was kept, or nothing."""
    with promise(StoreError):
        kept = Entry(text(choices), text(choices), "stop", choices.integer(0, 9), 9, 1.0, 2.0)
        packed = pack("place", "key", kept)
        if unpack("place", "key", packed) != kept:
            raise Broken(f"what was kept does not come back: {kept}")
        if packed != (spoilt := spoil_bytes(choices, packed)) and unpack("place", "key", spoilt) is not None:
            raise Broken("damaged bytes were taken for an answer")
        if unpack("other", "key", packed) is not None:
            raise Broken("an answer is found at another place")
    read_vectors([choices.bytes(16), choices.bytes(8), None, json.dumps(1)], choices.pick((1, 4)))
