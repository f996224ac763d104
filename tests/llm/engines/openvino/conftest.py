"""A language model of random weights, built once for all sessions of the same build scripts."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from trimodal.llm.tokenizer import CheckpointTokenizer
from trimodal.paths import cache_directory

ROOT = Path(__file__).parents[4]
CACHE = cache_directory()  # the user's: once a test of tests/e2e ran, TRIMODAL_CACHE is a temporary one
SOURCES = ("build/random_checkpoint.py", "build/llm_openvino.py", "build/steps/random", "build/steps/llm")
QUESTIONS = [
    "what is a lambda?", "how do I open a file?", "what is a list?", "what is a dictionary?",
    "tell me about classes", "what does yield do?", "what is a decorator?", "explain try and except",
    "what is a tuple?", "what is a set?", "how does import work?", "what is a generator?",
    "what is the with statement?", "what is a slice?", "what is None?", "what is a string?",
]  # fmt: skip


@pytest.fixture(scope="session")
def tiny() -> Path:
    """The artefact, in INT8: 512 tokens, 512 positions, answers without sense that hardly ever end.

    Other processes build it: importing torch takes longer than most of the tests.
    """
    files = sorted(file for name in SOURCES for file in [ROOT / name, *(ROOT / name).rglob("*.py")])
    content = b"".join(file.read_bytes() for file in files if file.is_file())
    key = hashlib.sha256(content + version("openvino").encode()).hexdigest()[:16]
    directory = CACHE / "tests" / f"llama-tiny-{key}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / "llama-tiny.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            checkpoint = directory.with_name(f"{directory.name}-checkpoint")
            for script, *arguments in (
                ("random_checkpoint", "llama-tiny", "--out", checkpoint),
                ("llm_openvino", checkpoint, "--precision", "int8", "--out", directory),
            ):
                command = [sys.executable, ROOT / "build" / f"{script}.py", *arguments]
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
                assert ended.returncode == 0, ended.stdout + ended.stderr
    return directory


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, which `./scripts/test` builds before the suite: where answers need sense."""
    return ROOT / "model_repository" / "llm" / "1" / "openvino-int8"


@pytest.fixture(scope="session")
def tokenizer(tiny: Path) -> CheckpointTokenizer:
    return CheckpointTokenizer(tiny)


@pytest.fixture(scope="session")
def prompts(tokenizer: CheckpointTokenizer) -> list[list[int]]:
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    return [tokenizer.encode(tokenizer.render(chat)) for chat in chats]
