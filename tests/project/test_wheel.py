"""The wheel works by itself: its contents, and that it serves from an unpacked copy, far from the tree.

The judge of the semantic cache is a wheel of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from trimodal.paths import INSTALL_JUDGE

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.build, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]
DATA = "trimodal/_data"
MOST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by pip."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder]
    subprocess.run([*command, ROOT, ROOT / "build" / "judge" / "wheel"], check=True, cwd=folder)
    (made,) = folder.glob("trimodal-*.whl")
    return made


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As in site-packages; nothing of it may be written to."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture(scope="module")
def judge(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The judge's own wheel, unpacked."""
    site = tmp_path_factory.mktemp("judge")
    (made,) = wheel.parent.glob("trimodal_judge-*.whl")
    assert made.name.split("-")[1] == wheel.name.split("-")[1]
    with zipfile.ZipFile(made) as archive:
        archive.extractall(site)
    return site


def trimodal(site: Path, cwd: Path, *arguments: object) -> list[str]:
    """The command line of `trimodal` from `site`."""
    code = f"import sys; sys.path.insert(0, {str(site)!r}); from trimodal.cli.app import app; app()"
    return [sys.executable, "-c", code, *map(str, arguments)]


def test_it_holds_repository_build_scripts_and_samples(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for file in [*ROOT.glob("model_repository/*/config.pbtxt"), *ROOT.glob("model_repository/*/configs/*")]:
        assert f"{DATA}/{file.relative_to(ROOT)}" in names
    for file in [*ROOT.glob("model_repository/*/1/model.py"), *ROOT.glob("build/*.py")]:
        assert f"{DATA}/{file.relative_to(ROOT)}" in names
    assert {
        f"{DATA}/model_repository/llm/tiers.toml",
        f"{DATA}/model_repository/vision_classify/1/.gitkeep",  # Triton wants the folder of a version
        f"{DATA}/build/steps/vision/export.py",
        f"{DATA}/build/steps/vision/imagenet.txt",
        f"{DATA}/build/judge/measure.py",
        f"{DATA}/build/starter.toml",
        f"{DATA}/samples/README.md",
        f"{DATA}/samples/speech/samples.json",
        f"{DATA}/samples/photos/cat.jpg",
        "trimodal/gateway/page/index.html",
        "trimodal/gateway/page/scripts/audio/worklet.js",
    } <= names
    # No engines; no checkpoints, nothing that the judge learned from, no byte code.
    repository = f"{DATA}/model_repository/"
    assert not [name for name in names if name.startswith(repository) and name.count("/") > 5]
    assert not [name for name in names if name.endswith((".safetensors", ".npz", ".pyc"))]
    assert not [name for name in names if "/build/judge/" in name and not name.endswith(".py")]


def test_init_copies_a_repository_to_edit(unpacked: Path, tmp_path: Path) -> None:
    command = trimodal(unpacked, tmp_path, "init", "mine")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "  trimodal serve --model-repository mine/model_repository"
    mine = tmp_path / "mine" / "model_repository"
    assert (mine / "llm" / "config.pbtxt").is_file()
    assert (tmp_path / "mine" / "samples" / "photos" / "cat.jpg").is_file()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (
        1, "trimodal init: mine/model_repository exists: name another directory\n"
    )  # fmt: skip


def test_it_knows_the_starter_set_and_where_engines_go(unpacked: Path, tmp_path: Path) -> None:
    """The wheel's own files are not written to."""
    code = (
        "from trimodal.starter import starter_set; from trimodal.paths import artefact_root; "
        "print(*starter_set(), artefact_root('llm'))"
    )
    home = tmp_path / "home"
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "XDG_DATA_HOME": str(home)}
    environment.pop("TRIMODAL_ENGINES", None)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    *names, engines = done.stdout.split()
    assert {"smollm2-135m-instruct", "whisper-base", "efficientnet-lite0", "minilm-l6-v2"} <= set(names)
    assert Path(engines) == home / "trimodal" / "engines" / "llm"


def test_the_judge_is_found_where_its_wheel_is_installed(unpacked: Path, judge: Path, tmp_path: Path) -> None:
    code = (
        "from trimodal.paths import default_repository; from trimodal.repository import read_model; "
        "from trimodal.server.artefacts import check_artefacts; "
        "model = read_model(default_repository(), 'judge', 'cpu'); check = check_artefacts([model], []); "
        "check.start(); check.join(); assert not check.failure, check.failure; "
        "print(model.artefact_directory(model.artefact))"
    )

    def found(*sites: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sites))}
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert found(unpacked, judge).stdout.strip() == str(judge / "trimodal_judge" / "onnx-int8")
    assert f"no built engine judge/1/onnx-int8: get one with: {INSTALL_JUDGE}" in (found(unpacked).stderr)


def test_it_serves_its_own_repository(unpacked: Path, tmp_path: Path) -> None:
    fakes = ["--set", "embedding.engine=fake", "--model", "embedding"]
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    looked = subprocess.run(
        trimodal(unpacked, tmp_path, "doctor", *fakes),
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    repository = str(unpacked / DATA / "model_repository")
    assert repository in looked.stdout.replace("\n", "")
    # The stub imports trimodal, too: from the unpacked wheel.
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "TRIMODAL_CACHE": str(tmp_path / "cache")}
    command = trimodal(unpacked, tmp_path, "serve", *fakes, *ports)
    with (tmp_path / "told").open("w") as told:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=told, stderr=told)
        try:
            deadline = time.monotonic() + 120
            while "Ready." not in (text := (tmp_path / "told").read_text()):
                assert server.poll() is None, text
                assert time.monotonic() < deadline, text
                time.sleep(0.1)
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
