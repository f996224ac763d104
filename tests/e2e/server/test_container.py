"""`serve --gateway` as strict containers run it: what a host may lack or have, all at once."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.e2e import fakes
from tests.e2e.conftest import BOUND, MODEL_REPOSITORY, wait_until
from trimodal.server.ports import choose
from trimodal.speech.engines.fake import speak

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# A quota of one CPU, 64 MB of shared memory, then a user that no file knows.
CONTAINER = """
mount --bind "$1" /sys/fs/cgroup && mount -t tmpfs -o size=64m tmpfs /dev/shm || exit 77
shift
exec unshare --user --map-user=12345 --map-group=12345 "$@"
"""
NEW_ROOT = ("unshare", "--user", "--mount", "--map-root-user", "sh", "-c", CONTAINER, "sh")
DEAD = "http://127.0.0.1:9"
PROXIES = {
    name: DEAD for lower in ("http_proxy", "https_proxy", "all_proxy") for name in (lower, lower.upper())
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    """The URL of a gateway in such a container, without a locale, with blanks in its paths."""
    control, home, repository = (tmp_path / name for name in ("control", "home", "my models"))
    control.mkdir()
    (control / "cpu.max").write_text("100000 100000")
    home.mkdir(mode=0o500)
    artefacts = shutil.ignore_patterns("onnx-*", "openvino-*", "ctranslate2-*")
    shutil.copytree(MODEL_REPOSITORY, repository, ignore=artefacts)
    flags = [f"--{name}-port" for name in ("http", "grpc", "metrics", "health", "gateway")]
    ports = choose("127.0.0.1", dict.fromkeys(flags, 0))
    changes = fakes.changes(tmp_path)
    arguments = [f"{flag}={port}" for flag, port in ports.items()]
    arguments += [f"--model={name}" for name in fakes.MODELS]
    arguments += [
        f"--set={model}.{name}={value}"
        for model in fakes.MODELS
        for name, value in changes.get(model, {}).items()
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TRIMODAL_CACHE": str(tmp_path / "a cache")}
    environment |= PROXIES | {name: os.environ[name] for name in ("TRIMODAL_TEST_RUN",) if name in os.environ}
    said = tmp_path / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*NEW_ROOT, str(control), sys.executable, "-m", "trimodal.cli.app", "serve", "--gateway"]
            + [*arguments, "--model-repository", str(repository)],
            stdout=output, stderr=output, cwd=Path(__file__).parents[3], start_new_session=True,
            env=environment,
        )  # fmt: skip
    try:
        ends = lambda: b"Ready." in said.read_bytes() or process.poll() is not None  # noqa: E731
        wait_until(ends, "the server", 2 * BOUND)
        if process.poll() == 77 or said.read_bytes().startswith((b"unshare", b"mount")):
            pytest.skip(f"no namespaces here: {said.read_text()}")
        assert process.poll() is None, said.read_text()
        yield f"http://127.0.0.1:{ports['--gateway-port']}/v1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0, said.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        home.chmod(0o700)


def spoken(words: str) -> bytes:
    samples, _ = speak(words.split())
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes((np.asarray(samples) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def test_every_modality_is_answered(gateway: str) -> None:
    picture = "data:image/png;base64," + base64.b64encode(fakes.png(1)).decode()
    with httpx.Client(base_url=gateway, timeout=BOUND, trust_env=False) as api:

        def post(path: str, **more: object) -> dict[str, object]:
            answer = api.post(path, **more)  # type: ignore[arg-type]
            assert answer.status_code == 200, answer.text
            told: dict[str, object] = answer.json()
            return told

        chat = {"model": "llm", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
        assert post("/chat/completions", json=chat)["usage"]
        assert post("/embeddings", json={"model": "embedding", "input": "a text"})["data"]
        seen = post("/images/classifications", json={"model": "vision", "input": [picture]})
        assert seen["data"]
        file = {"file": ("a.wav", spoken("lambda list string"))}
        heard = post("/audio/transcriptions", data={"model": "speech"}, files=file)
        assert heard["text"] == "lambda list string"
