"""OpenAI's package for JavaScript, from npm, against the gateway before a real Triton on fake engines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import soundfile

from tests.e2e.gateway.test_openai import gateway
from trimodal.server.process import TritonServer
from trimodal.speech.engines.fake import speak

# Slow: the package is fetched.
pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the calls and the package that they use."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: OpenAI's package for JavaScript was not tried")
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "calls.mjs"):
        shutil.copy(HERE / name, folder)
    command = ["npm", "install", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_call(package: Path, fakes: TritonServer, tmp_path: Path) -> None:
    recording = tmp_path / "a.wav"
    soundfile.write(recording, speak(["one", "two"])[0], 16_000)
    with gateway(fakes.grpc_url) as url:
        command = ["node", "calls.mjs", url, str(recording)]
        done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 10
