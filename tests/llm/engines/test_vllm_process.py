"""A GPU engine from service to child process, all but its library: answers, losses, and no leftovers."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pydantic
import pytest

from tests.llm.doubles.sinks import Collector, counts, eventually
from tests.llm.engines.tensorrt_llm.rig import artefact
from trimodal.errors import Cancelled, Unavailable
from trimodal.llm.engine_core.client import EngineCoreClient, start_process
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.service import LlmService
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics

TESTS = Path(__file__).parents[2]
DEMO = TESTS.parent / "build" / "demo" / "llm"
BORROWED = ("pydantic", "pydantic_core", "typing_extensions.py", "annotated_types", "typing_inspection")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> LlmSettings:
    """vLLM's stand-in in an environment of its own, and the demo checkpoint in place."""
    root = tmp_path_factory.mktemp("vllm")
    venv.create(root / "env", with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = root / "env" / "lib" / version / "site-packages"
    for path in [
        *(Path(pydantic.__file__).parents[1] / name for name in BORROWED),
        *(TESTS / "doubles" / "importable").iterdir(),
    ]:
        (packages / path.name).symlink_to(path)
    placed = artefact(root / "checkpoint", "checkpoint", shapes={"max_position_embeddings": 1024})
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(DEMO / name, placed / name)
    return LlmSettings(
        engine="vllm", artefact=str(placed), python=str(root / "env" / "bin" / "python"), cancel_poll_ms=2
    )


class Served:
    def __init__(self, settings: LlmSettings) -> None:
        self.links: list[EngineCoreClient] = []
        self.metrics = MemoryMetrics()
        self.service = LlmService(settings, LlmMetrics(self.metrics, "llm"), self._start)

    def _start(self, settings: LlmSettings) -> EngineCoreClient:
        self.links.append(start_process(settings))
        return self.links[-1]

    def ask(self, prompt: str, max_tokens: int) -> Collector:
        """Asks again for as long as a new engine is being opened."""
        sink, deadline = Collector(), time.monotonic() + 20
        while True:
            try:
                self.service.submit(GenerationRequest(prompt, None, Sampling(max_tokens)), sink)
                return sink
            except Unavailable:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    @property
    def family(self) -> list[int]:
        """Process ids of the engine and of what it started, the newest engine's."""
        leader = self.links[-1].pid or 0
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return sorted(pid for pid in pids if group(pid) == leader)

    @property
    def core(self) -> int:
        """The child that a real one would keep on the GPU."""
        (pid,) = [pid for pid in self.family if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return pid


def group(pid: int) -> int:
    """Of a process that runs; 0 of others."""
    try:
        state, _, number = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
    except OSError:
        return 0
    return 0 if state == "Z" else int(number)


@contextmanager
def serving(settings: LlmSettings) -> Iterator[Served]:
    made = Served(settings)
    try:
        yield made
    finally:
        made.service.close()
    eventually(lambda: made.family == [])


def test_text_cancellation_and_usage(settings: LlmSettings) -> None:
    with serving(settings) as served:
        info = served.links[-1].info
        assert (info.name, info.num_kv_blocks, info.block_tokens, info.max_model_len) == (
            "vllm",
            64,
            16,
            1024,
        )
        leaving = served.ask("goes on and on", 900)
        eventually(lambda: len(leaving.deltas) > 3)
        assert served.metrics.get("trimodal_llm_kv_usage_ratio", {"model": "llm"}).value > 0
        answer = served.ask("hello there", 60).wait()
        assert "hello there" in answer.text
        assert (answer.deltas[-1].finish_reason, answer.deltas[-1].completion_tokens) == ("length", 60)
        leaving.cancelled = True
        assert isinstance(leaving.wait().error, Cancelled)
        eventually(lambda: counts(served.service) == (0, 0, 0))
        eventually(lambda: served.metrics.get("trimodal_llm_kv_usage_ratio", {"model": "llm"}).value == 0)


@pytest.mark.parametrize("victim", ["engine", pytest.param("core", marks=pytest.mark.slow)])
def test_who_dies_takes_the_other_along_and_a_new_engine_answers(
    settings: LlmSettings, capfd: pytest.CaptureFixture[str], victim: str
) -> None:
    with serving(settings) as served:
        running = served.ask("goes on and on", 900)
        eventually(lambda: len(running.deltas) > 3)
        old = served.family
        os.kill(served.core if victim == "core" else served.links[-1].pid or 0, signal.SIGKILL)
        assert isinstance(running.wait().error, Unavailable)
        eventually(lambda: len(served.links) == 2)
        assert [pid for pid in old if group(pid)] == [], "its memory is free before a new one opens"
        eventually(lambda: counts(served.service) == (0, 0, 0))
        assert "again" in served.ask("again", 40).wait().text
        if victim == "core":
            assert "the engine is lost: vllm ended during a request" in capfd.readouterr().err


def test_a_core_that_dies_while_nothing_runs_is_replaced(settings: LlmSettings) -> None:
    with serving(settings) as served:
        os.kill(served.core, signal.SIGKILL)
        eventually(lambda: len(served.links) == 2, timeout=20)
        assert "again" in served.ask("again", 40).wait().text
