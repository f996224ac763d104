import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from trimodal.cli import common
from trimodal.cli.app import app
from trimodal.cli.client.classify import SUFFIXES
from trimodal.client import Client, FakeTransport
from trimodal.errors import InvalidArgument


def vision(request):
    images = request.inputs["image"][:, 0]
    if any(not image.startswith(b"cat") for image in images):
        raise InvalidArgument("image cannot be decoded")
    names = np.array([[b"cat", b"d\xc3\xb6g"]] * len(images), dtype=object)
    return {"labels": names, "scores": np.array([[0.75, 0.25]] * len(images), np.float32)}


@pytest.fixture
def fake(monkeypatch):
    transport = FakeTransport(vision=vision, batch_sizes={"vision": 4})
    monkeypatch.setattr(common, "connect", lambda url, silence: Client(transport=transport))
    monkeypatch.setenv("COLUMNS", "300")
    return transport


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.png", "a.JPG", "sub/c.webp", "sub/d.jpeg", "notes.txt", "e.png"):
        (tmp_path / name).write_bytes(b"cat " + name.encode())
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["classify", *map(str, arguments)])


def test_a_folder(fake, folder):
    result = run(folder)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["file", "label", "score", "ms"]
    files = [line.split()[0] for line in lines[1:] if str(folder) in line]
    assert files == [str(folder / name) for name in ("a.JPG", "b.png", "e.png", "sub/c.webp", "sub/d.jpeg")]
    assert len(lines) == 6, "one line a file"
    assert "0.7500" in lines[1]
    told = f"trimodal: 1 skipped, as no {', '.join(SUFFIXES)}: {folder / 'notes.txt'}"
    assert result.stderr.strip() == told, "what a folder has besides is named"
    assert sorted(len(request.inputs["image"]) for request in fake.requests) == [1, 4]


def test_json_lines(fake, folder):
    result = run(folder, "--top-k", "1", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["predictions"] for row in rows] == [[{"label": "cat", "score": 0.75}]] * 5
    assert all(row["ms"] > 0 for row in rows)


def test_a_bad_file_is_reported_and_the_others_are_answered(fake, folder):
    (folder / "bad.png").write_bytes(b"dog")
    result = run(folder / "a.JPG", folder / "bad.png", folder / "missing.png", folder / "b.png", "--json")
    assert result.exit_code == 1
    good, bad, missing, other = [json.loads(line) for line in result.stdout.splitlines()]
    assert "predictions" in good
    assert "predictions" in other
    assert (bad["error"], bad["code"]) == ("image cannot be decoded", "INVALID_ARG")
    assert (missing["error"], missing["code"], missing["ms"]) == ("no such file or directory", "FILE", None)
    table = run(folder / "a.JPG", folder / "bad.png")
    assert table.exit_code == 1
    assert "image cannot be decoded" in table.stdout
    assert "0.7500" in table.stdout


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_name_that_is_no_text_of_this_system_is_shown_escaped(fake, tmp_path, options):
    """It was a traceback, after the work."""
    (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes(b"cat")
    result = run(tmp_path, *options)
    assert result.exit_code == 0, result.output
    assert "caf\\udce9.png" in result.stdout


def test_nothing_to_classify(fake, tmp_path):
    result = run(tmp_path)
    assert result.exit_code == 1
    assert f"no {', '.join(SUFFIXES)} files there" in result.stderr


def test_a_file_without_end_is_told_beside_the_others(fake, folder):
    result = run(folder / "b.png", "/dev/zero", "--json")
    assert result.exit_code == 1
    good, bad = (json.loads(line) for line in result.stdout.splitlines())
    assert good["predictions"][0]["label"] == "cat"
    assert bad["error"] == "it has more than 67,108,864 bytes"
