"""Starts three servers on fake engines whose step times, not this machine's cores, bound what they serve."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from google.protobuf import text_format  # type: ignore[import-untyped]

from tests.e2e.fakes import vision
from tests.e2e.fleet.proxy import SERVERS
from trimodal.paths import default_engines, default_repository
from trimodal.repository import read_model
from trimodal.server.options import ServerOptions
from trimodal.server.overlay import Changes, overlay
from trimodal.server.process import TritonServer

MODELS = ("llm", "vision", "speech", "speech_recognize")
SEQUENCES = 4  # of one step of the llm
STEP_MS = 100
IMAGES = 2  # of one run of the classifier
RUN_MS = 100
STREAMS = 4
BLOCKS = 800  # of 32 tokens


def changes(folder: Path) -> dict[str, dict[str, str]]:
    """Parameters of all models; makes vision's artefact, which has no model in it, in `folder`."""
    return {
        "llm": {
            "engine": "fake",
            "fake_answer": "word " * 40,
            "fake_step_ms": str(STEP_MS),
            "fake_prefill_us": "0",
            "max_num_seqs": str(SEQUENCES),
            "max_num_batched_tokens": "4096",
            "max_prompt_tokens": "16000",
            "num_kv_blocks": str(BLOCKS),
        },
        **vision(folder, fake_delay_ms=str(RUN_MS)),
        "speech": {"vad": "energy", "max_streams": str(STREAMS)},
        "speech_recognize": {"engine": "fake"},
    }


def _repository(folder: Path, parameters: Changes) -> Path:
    """With these parameters, and a Triton that gathers no more images than one run takes."""
    repository = overlay(default_repository(), folder / "repository", parameters, engines=default_engines())
    model = read_model(repository, "vision", "cpu")
    model.config.max_batch_size = IMAGES
    del model.config.dynamic_batching.preferred_batch_size[:]
    model.config_file.write_text(text_format.MessageToString(model.config))
    return repository


class Fleet:
    """Three servers; each keeps its ports when it is started again."""

    def __init__(self, folder: Path, more: dict[str, str]) -> None:
        parameters = changes(folder)
        parameters["llm"] |= more
        place = {"repository": _repository(folder, parameters), "engines": None}
        self._options = [ServerOptions.on_free_ports(*MODELS, drain_timeout=10.0, **place) for _ in SERVERS]
        self.servers: list[TritonServer] = []

    def start(self) -> None:
        """Raises: ServerError."""
        self.servers = [TritonServer(options) for options in self._options]
        with ThreadPoolExecutor(len(SERVERS)) as pool:
            for started in [pool.submit(server.start) for server in self.servers]:
                started.result()
        for place, server in enumerate(self.servers):
            ports = {flag[2:].replace("-", "_"): port for flag, port in server.ports.items()}
            self._options[place] = replace(self._options[place], **ports)  # type: ignore[arg-type]

    def again(self, place: int) -> None:
        """Starts a server that has ended, on its ports. Raises: ServerError."""
        self.servers[place] = TritonServer(self._options[place])
        self.servers[place].start()

    def addresses(self, count: int = len(SERVERS)) -> dict[str, str]:
        """What deploy/haproxy/fleet.cfg reads: of the first `count` servers."""
        found = {}
        for number, server in enumerate(self.servers[:count], 1):
            found[f"TRIMODAL_FLEET_GRPC_{number}"] = server.grpc_url
            found[f"TRIMODAL_FLEET_HTTP_{number}"] = server.http_url
            found[f"TRIMODAL_FLEET_HEALTH_{number}"] = server.health_url
        return found

    def stop(self) -> None:
        for server in self.servers:
            server.stop(0)


@contextmanager
def fleet(folder: Path, **llm: str) -> Iterator[Fleet]:
    """Three servers. Raises: ServerError when one cannot start."""
    started = Fleet(folder, llm)
    try:
        started.start()
        yield started
    finally:
        started.stop()
