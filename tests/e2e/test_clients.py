"""Images and vectors through the client, its command and the copyable programs; the engines are fakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import run_python
from tests.e2e.fakes import png
from tests.e2e.metrics import total
from trimodal.client import Client
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

CLIENTS = Path(__file__).parents[2] / "clients"


@pytest.fixture(scope="module")
def server(fakes: TritonServer) -> TritonServer:
    return fakes


@pytest.fixture
async def client(server):
    async with Client(server.grpc_url) as client:
        yield client


@pytest.fixture
def folder(tmp_path):
    """20 good pictures, more than a batch, and one that is none."""
    for number in range(20):
        (tmp_path / f"{number:02}.png").write_bytes(png(number % 3))
    (tmp_path / "20.jpg").write_bytes(b"not a picture")
    return tmp_path


async def test_images_in_batches_of_the_model(client):
    assert await client.max_batch_size("vision") == 16
    rows = await client.classify([png(number % 3) for number in range(40)], top_k=2)
    assert [row[0].label for row in rows] == [f"class {number % 3}" for number in range(40)]
    assert {len(row) for row in rows} == {2}
    assert all(row[0].score > 0.9 for row in rows)


async def test_vectors(client):
    texts = [f"text é {number % 35}" for number in range(70)]
    vectors = await client.embed(texts)
    assert vectors.shape == (70, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(vectors[:35], vectors[35:])
    assert len(np.unique(vectors[:35], axis=0)) == 35


def test_the_copyable_classifier(server, folder):
    done = run_python(CLIENTS / "classify.py", folder, "--url", server.grpc_url, "--batch-size", 6)
    assert done.returncode == 1
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [label for _, label, _ in rows] == [f"class {number % 3}" for number in range(20)]
    assert [Path(file).name for file, _, _ in rows] == [f"{number:02}.png" for number in range(20)]
    assert "20.jpg" in done.stderr
    assert "not a JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or HEIC file" in done.stderr
    assert "Traceback" not in done.stderr
    assert run_python(CLIENTS / "classify.py", folder / "00.png", "--url", server.grpc_url).returncode == 0


def test_the_copyable_cosine(server):
    same = run_python(CLIENTS / "embed.py", "naïve", "naïve", "--url", server.grpc_url)
    assert (same.returncode, same.stdout) == (0, "1.0000\n"), same.stderr
    other = run_python(CLIENTS / "embed.py", "naïve", "otherwise", "--url", server.grpc_url)
    assert abs(float(other.stdout)) < 0.5
    nobody = run_python(CLIENTS / "embed.py", "a", "b", "--url", "127.0.0.1:1")
    assert nobody.returncode == 1
    assert "Traceback" not in nobody.stderr


@pytest.mark.parametrize("program", ["chat_grpc", "chat_http", "classify"])
def test_nobody_who_reads_any_more_ends_a_copyable_program_without_a_traceback(server, folder, program):
    asked = [folder] if program == "classify" else ["a question"]
    url = server.http_url.removeprefix("http://") if program == "chat_http" else server.grpc_url
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, CLIENTS / f"{program}.py", *asked, "--url", url]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(write)
    assert done.returncode == 130, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("program", ["chat_grpc", "chat_http", "classify", "embed"])
def test_the_copyable_programs_are_short_and_stand_alone(program):
    text = (CLIENTS / f"{program}.py").read_text()
    assert len(text.splitlines()) <= 60
    assert "trimodal" not in text
    assert "usage: " in run_python(CLIENTS / f"{program}.py", "--help").stdout


async def test_a_probe_is_answered_and_counts_as_no_failure(client: Client, server: TritonServer) -> None:
    before = failures(server)
    for name in [model.name for model in await client.models()]:
        assert await client.ready(name), name
    assert not await client.ready("nothing")
    assert failures(server) == before


def failures(server: TritonServer) -> float:
    return total(server, "nv_inference_request_failure")
