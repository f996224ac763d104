"""Every experiment runs as docs/benchmarks.md says, in its smallest setting."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.project.pages import ROOT

LLM = "model_repository/llm/1/openvino-int8"
SPEECH = "model_repository/speech_recognize/1/ctranslate2-tiny.en"
QUICK = {
    "stores": (
        "cache.stores --size 30 --size 10 --calls 5 --store lost=redis://127.0.0.1:1/0",
        ["embedded", "lost: Redis"],
    ),
}
REFUSED = {
    "overload --capacity 50000 --load 1 --seconds 1": "bench: --load, times the capacity of 50000 requests/s",
    "parity.contexts --artefact none": "benchmarks: none/manifest.json: no such file or directory",
}
SLOW = {
    "affinity": ("affinity --fake --chats 4 --turns 2", ["in turn", "by beginning"]),
    "gateway": ("gateway --streams 2 --turns 1 --seconds 2", ["gRPC", "gateway"]),
    "burst": ("gateway --burst --streams 4 --turns 1", ["gRPC", "gateway"]),
    "start demo": ("start demo --times 1", ["demo: seconds", "median"]),
    "start serve": ("start serve --times 1", ["serve: seconds", "median"]),
    "memory": ("memory --seconds 2 --recording-s 5", ["llm's engine", "all models in one server"]),
    "overhead": ("overhead --streams 2 --seconds 1", ["ms above the known delay"]),
    "simulator": ("simulator --seconds 2", ["goodput /s", "in the mean"]),
    "parity.contexts": (
        f"parity.contexts --artefact {SPEECH} --contexts 15 --windows 1",
        ["1 recordings", "15"],
    ),
    "parity.speech": (
        f"parity.speech --artefact {SPEECH} --beam 1 --long-s 0 --no-fetch --most 2",
        ["2: sentences", "faster-whisper", "batched"],
    ),
    "variants": (
        f"variants shipped groups-32 --artefact {LLM} --prompt-tokens 40 --streams 2 --max-tokens 3"
        " --rounds 1",
        ["shipped", "groups-32"],
    ),
}  # fmt: skip


def run(arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *f"benchmarks.{arguments}".split()]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        *(pytest.param(*one, id=name) for name, one in QUICK.items()),
        *(
            pytest.param(*one, id=name, marks=[pytest.mark.slow, pytest.mark.e2e, pytest.mark.build])
            for name, one in SLOW.items()
        ),
    ],
)
def test_it_shows_its_table(arguments: str, shown: list[str]) -> None:
    done = run(arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    for text in shown:
        assert text in done.stdout


def test_a_password_in_a_wrong_option_is_not_repeated() -> None:
    done = run("cache.stores --store redis://:secret@host")
    assert done.returncode == 2
    assert "NAME=URL is needed" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_cannot_be_measured_is_told_by_one_sentence(arguments: str) -> None:
    done = run(arguments)
    assert (done.returncode, done.stderr.startswith(REFUSED[arguments])) == (1, True), done.stderr
