"""Starts three servers on fake engines whose step times, not this machine's cores, bound what they serve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.e2e.fleet.proxy import SERVERS
from trimodal.manifest import Manifest, write_manifest
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer
from trimodal.vision.artefact import LABELS

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
        "vision": {"engine": "fake", "fake_delay_ms": str(RUN_MS), "artefact": str(_classifier(folder))},
        "speech": {"vad": "energy", "max_streams": str(STREAMS)},
        "speech_recognize": {"engine": "fake"},
    }


def _classifier(folder: Path) -> Path:
    target = folder / "classifier"
    target.mkdir(parents=True, exist_ok=True)
    size = {"height": 8, "width": 8, "resize": "exact", "mean": (0, 0, 0), "std": (1 / 255,) * 3}
    manifest = Manifest(
        task="vision",
        runtime="onnxruntime",
        runtime_version="0",
        precision="fp32",
        source="bench",
        source_sha256="none",
        command="tests/e2e/fleet",
        shapes={"classes": 3},
        extra={"pixels": "uint8", "input": size},
    )
    write_manifest(target, manifest)
    (target / LABELS).write_text(json.dumps(["zero", "one", "two"]))
    return target


def _bounded(name: str, config: Any) -> None:
    """Triton gathers no more images than one run takes."""
    if name == "vision":
        config.max_batch_size = IMAGES
        del config.dynamic_batching.preferred_batch_size[:]


class Fleet:
    """Three servers; each keeps its ports when it is started again."""

    def __init__(self, folder: Path, more: dict[str, str]) -> None:
        parameters = changes(folder)
        parameters["llm"] |= more
        self._options = [
            ServerOptions.on_free_ports(*MODELS, changes=parameters, edit=_bounded, drain_timeout=10.0)
            for _ in SERVERS
        ]
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
