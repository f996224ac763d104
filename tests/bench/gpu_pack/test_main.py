"""A wheel goes into pieces and comes out whole, wherever they were carried and in how many trips."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.bench.gpu_pack.libraries import CUBIN, container, elf
from trimodal.bench.gpu_pack import __main__

NOISE = os.urandom(6000)  # does not compress
FILES = {
    "thing/__init__.py": b"ANSWER = 42\n",
    "thing/lib.so": elf({".nv_fatbin": container((CUBIN, 80, b"A" * 4096), (CUBIN, 90, NOISE[:4096]))}),
    "thing-1.0.data/purelib/thing/more.py": b"MORE = 1\n",
    "thing-1.0.data/scripts/thing": b"#!/bin/sh\n",
}


@pytest.fixture
def packed(tmp_path):
    """The folder that is carried."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "thing-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in FILES.items():
            wheel.writestr(name, content)
    out = tmp_path / "out"
    given = ["--sm", "9.0", "--wheels", str(wheels), "--out", str(out), "--piece-mib", "0.002"]
    assert __main__.main(given) == 0
    return out


def unpack(folder, site):
    command = [sys.executable, "-S", str(folder / "unpack.py"), str(site)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_pieces_are_small_and_give_the_wheel_back(packed, tmp_path, capsys):
    pieces = sorted(packed.glob("thing-1.0.tar.xz.*"))
    assert len(pieces) >= 2
    assert all(piece.stat().st_size <= 0.002 * 2**20 for piece in pieces)
    assert list(json.loads((packed / "pieces.json").read_text())["thing-1.0"]) == [one.name for one in pieces]
    site = tmp_path / "site"
    ended = unpack(packed, site)
    assert ended.returncode == 0, ended.stderr
    assert (site / "thing/more.py").read_bytes() == b"MORE = 1\n"
    assert not list(site.glob("*.data"))
    library = (site / "thing/lib.so").read_bytes()
    assert NOISE[:4096] in library
    assert b"A" * 64 not in library
    used = [sys.executable, "-c", "import thing.more; print(thing.ANSWER)"]
    assert subprocess.run(used, capture_output=True, cwd=site).stdout == b"42\n"


def test_pieces_may_come_in_several_trips(packed, tmp_path):
    site, first = tmp_path / "site", tmp_path / "first"
    shutil.copytree(packed, first)
    late = first / "thing-1.0.tar.xz.001"
    late.unlink()
    ended = unpack(first, site)
    assert ended.returncode == 1
    assert "missing: thing-1.0.tar.xz.001" in ended.stderr
    assert not (site / "thing").exists()
    assert unpack(packed, site).returncode == 0
    for piece in packed.glob("*.tar.xz.*"):  # the next trip carries others
        piece.unlink()
    assert unpack(packed, site).returncode == 0


def test_a_damaged_piece_is_told_and_nothing_unpacked(packed, tmp_path):
    piece = packed / "thing-1.0.tar.xz.001"
    piece.write_bytes(piece.read_bytes()[:-1] + b"x")
    ended = unpack(packed, tmp_path / "site")
    assert ended.returncode == 1
    assert ended.stderr.strip() == "unpack: thing-1.0.tar.xz.001 is damaged: bring it again"
    assert not (tmp_path / "site/thing").exists()


def test_requirements_are_fetched_for_the_other_machine(tmp_path, monkeypatch, capsys):
    asked = []

    def run(command, **_):
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: No matching distribution\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert __main__.main(["thing==1.0", "--sm", "9.0", "--out", str(tmp_path / "out")]) == 1
    (command,) = asked
    assert {"--no-deps", "--only-binary=:all:", "--platform=manylinux_2_28_x86_64"} <= set(command)
    assert command[command.index("--python-version") + 1] == "3.12"
    assert command[-1] == "thing==1.0"
    assert capsys.readouterr().err == "gpu_pack: pip download thing==1.0: ERROR: No matching distribution\n"


def test_what_is_no_wheel_and_an_empty_folder_are_told(tmp_path, capsys):
    given = ["--sm", "9.0", "--wheels", str(tmp_path), "--out", str(tmp_path / "out")]
    assert __main__.main(given) == 1
    assert "no wheel in" in capsys.readouterr().err
    (tmp_path / "x-1-py3-none-any.whl").write_bytes(b"no zip")
    assert __main__.main(given) == 1
    assert "x-1-py3-none-any.whl cannot be unpacked" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", [("--sm", "hopper", "x"), ("--sm", "9.0"), ("--sm", "9.0", "x", "--piece-mib", "0")]
)
def test_arguments_that_pack_nothing_are_refused(given, capsys):
    with pytest.raises(SystemExit) as ended:
        __main__.main(list(given))
    assert ended.value.code == 2


def test_the_script_runs_with_the_standard_library_alone():
    script = Path(__file__).parents[3] / "scripts" / "gpu_pack"
    environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PYTHONNOUSERSITE": "1"}
    code = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=60, env=environment)
    assert code.returncode == 0, code.stderr
    assert "--sm" in code.stdout
    block = (
        "import sys; sys.meta_path.insert(0, type('B', (), {'find_spec': staticmethod(lambda name, *_: "
        "(_ for _ in ()).throw(ImportError(name)) if name in ('numpy', 'pydantic', 'rich') else None)})); "
        "import trimodal.bench.gpu_pack.__main__"
    )
    assert subprocess.run([sys.executable, "-c", block], cwd=script.parents[1], timeout=60).returncode == 0
