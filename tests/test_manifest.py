"""Manifests are checked when read, and artefacts appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trimodal.errors import ArtefactError
from trimodal.manifest import (
    MANIFEST,
    Manifest,
    atomic_directory,
    built_at,
    check_room,
    checkpoint_sha256,
    read_manifest,
    sha256,
    told_when_full,
    write_manifest,
)


def manifest() -> Manifest:
    return Manifest(
        task="vision",
        runtime="onnxruntime",
        runtime_version="1",
        precision="fp32",
        source="here",
        source_sha256="none",
        command="python build/vision_onnx.py here",
        shapes={"classes": 3},
    )


@pytest.fixture
def built(tmp_path: Path) -> Path:
    directory = tmp_path / "onnx-fp32"
    with atomic_directory(directory) as work:
        (work / "model.onnx").write_bytes(b"weights")
        (work / "more").mkdir()
        (work / "more" / "labels.json").write_text("[]")
        write_manifest(work, manifest())
    return directory


def test_what_was_written_is_read(built: Path) -> None:
    read = read_manifest(built, task="vision", runtime="onnxruntime")
    assert read.shapes == {"classes": 3}
    assert read.files == {
        "model.onnx": hashlib.sha256(b"weights").hexdigest(),
        "more/labels.json": hashlib.sha256(b"[]").hexdigest(),
    }
    assert read.built_at.endswith("+00:00")


def test_a_checkpoint_whose_name_is_no_utf_8_is_in_it_all_the_same(tmp_path: Path) -> None:
    """After minutes of a build its manifest could not be written."""
    name = os.fsdecode(b"b\xfcd \xc3\xbc")
    made = Manifest(**manifest().model_dump() | {"source": name, "command": f"build {name}"})
    write_manifest(tmp_path, made)
    read = read_manifest(tmp_path, task="vision", runtime="onnxruntime")
    assert (read.source, read.command) == ("b\ufffdd ü", "build b\ufffdd ü")


def test_nothing_built_says_how_to_build(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"no built llm engine .*: build one first \(trimodal build llm"):
        read_manifest(tmp_path, task="llm", runtime="openvino")
    with pytest.raises(
        ArtefactError, match=r"no built judge engine in .* --find-links DIST 'trimodal\[cache\]'"
    ):
        read_manifest(tmp_path, task="judge", runtime=None)


@pytest.mark.parametrize(("task", "runtime"), [("llm", "onnxruntime"), ("vision", "tensorrt")])
def test_another_task_or_runtime_is_refused(built: Path, task: str, runtime: str) -> None:
    wanted = (
        f"holds a vision engine for onnxruntime, not a {task} engine for {runtime}: build again with: python"
    )
    with pytest.raises(ArtefactError, match=wanted):
        read_manifest(built, task=task, runtime=runtime)


def test_whatever_the_runtime_is_the_task_must_fit(built: Path) -> None:
    assert read_manifest(built, task="vision", runtime=None).runtime == "onnxruntime"
    with pytest.raises(ArtefactError, match="holds a vision engine for onnxruntime, not a llm engine: build"):
        read_manifest(built, task="llm", runtime=None)


def test_a_missing_file_is_named(built: Path) -> None:
    (built / "more" / "labels.json").unlink()
    with pytest.raises(ArtefactError, match="lacks more/labels.json: build again with: python build/vision"):
        read_manifest(built, task="vision", runtime="onnxruntime")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda values: values.pop("precision"), "precision"),
        (lambda values: values.update(colour="red"), "colour"),
        (lambda values: values.update(shapes=5), "shapes"),
        (lambda values: values.update(source=None), "source"),
        (lambda values: values.update(source=7), "source"),
        (lambda values: values.update(command=["build"]), "command"),
    ],
)
def test_a_damaged_manifest_names_the_field(built: Path, damage, named: str) -> None:
    values = json.loads((built / MANIFEST).read_text())
    damage(values)
    (built / MANIFEST).write_text(json.dumps(values))
    with pytest.raises(ArtefactError, match=rf"is damaged \({named}\): build the engine again"):
        read_manifest(built, task="vision", runtime="onnxruntime")


def test_a_manifest_that_is_no_json(built: Path) -> None:
    (built / MANIFEST).write_text("{")
    with pytest.raises(ArtefactError, match=r"is damaged \(JSON\)"):
        read_manifest(built, task="vision", runtime="onnxruntime")


def test_a_manifest_of_bytes_that_are_no_text_or_that_may_not_be_read(built: Path, monkeypatch) -> None:
    (built / MANIFEST).write_bytes(b"\xff\xfe" + bytes(64))
    with pytest.raises(ArtefactError, match=r"manifest.json is damaged \(JSON\): build the engine again"):
        read_manifest(built, task="vision", runtime="onnxruntime")

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ArtefactError, match="manifest.json cannot be read: Permission denied"):
        read_manifest(built, task="vision", runtime="onnxruntime")


def test_a_place_where_no_directory_can_be_is_refused_before_the_work(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for target, sentence in (
        (file, "file is a file: move it away"),
        (file / "onnx-fp32", r"onnx-fp32 cannot be written \((File exists|Not a directory)\)"),
    ):
        with pytest.raises(ArtefactError, match=sentence), atomic_directory(target):
            pytest.fail("the work has begun")
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_artefact_replaces_the_old_one_whole(built: Path) -> None:
    with atomic_directory(built) as work:
        assert (built / "model.onnx").read_bytes() == b"weights", (
            "the old one serves while the new one is built"
        )
        (work / "model.onnx").write_bytes(b"new")
    assert [path.name for path in built.iterdir()] == ["model.onnx"]
    assert (built / "model.onnx").read_bytes() == b"new"
    assert [path.name for path in built.parent.iterdir()] == [built.name], "nothing temporary is left"
    assert built.stat().st_mode & 0o777 == 0o755


def test_a_link_is_replaced_and_what_it_leads_to_is_left(built: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / "artefact"
    link.parent.mkdir()
    link.symlink_to(built)
    with atomic_directory(link) as work:
        (work / "model.onnx").write_bytes(b"new")
    assert [path.name for path in link.parent.iterdir()] == [link.name], "nothing temporary is left"
    assert (link / "model.onnx").read_bytes() == b"new"
    assert (built / "model.onnx").read_bytes() == b"weights"


def fail_half_way(target: Path, error: type[BaseException]) -> None:
    with atomic_directory(target) as work:
        (work / "model.onnx").write_bytes(b"half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_build_that_fails_leaves_the_old_artefact(built: Path, error: type[BaseException]) -> None:
    before = {path: path.read_bytes() for path in built.rglob("*") if path.is_file()}
    with pytest.raises(error):
        fail_half_way(built, error)
    assert {path: path.read_bytes() for path in built.rglob("*") if path.is_file()} == before
    assert [path.name for path in built.parent.iterdir()] == [built.name]


def test_a_first_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "artefact"
    with pytest.raises(RuntimeError):
        fail_half_way(target, RuntimeError)
    assert list(target.parent.iterdir()) == []


def test_a_checkpoint_hash_is_over_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1")
    first = checkpoint_sha256(tmp_path)
    (tmp_path / "README.md").write_text("no part of it")
    assert checkpoint_sha256(tmp_path) == first
    (tmp_path / "model.safetensors").write_bytes(b"2")
    second = checkpoint_sha256(tmp_path)
    assert second != first
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    assert checkpoint_sha256(tmp_path) not in (first, second)


@pytest.mark.parametrize("name", ["efficientnet-lite0.pth", "model.onnx_data", "chat_template.jinja"])
def test_a_checkpoint_hash_is_over_files_of_every_kind(name: str, tmp_path: Path) -> None:
    """torchvision's and optimum's names: else all checkpoints of a lone .pth file had one hash."""
    hashes = {checkpoint_sha256(tmp_path)}
    for content in (b"1", b"2"):
        (tmp_path / name).write_bytes(content)
        hashes.add(checkpoint_sha256(tmp_path))
    assert len(hashes) == 3


def test_a_file_hash_is_sha256(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * ((1 << 20) + 1))
    assert sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("full", "sentence"),
    [
        ("", "iostream error"),
        ("engines", "the disk of .*engines is full: free some, or name another directory"),
        ("temporary", "the disk of .*temporary is full: free some, or set TMPDIR"),
    ],
)
def test_a_full_disk_is_told_whatever_a_library_makes_of_it(tmp_path, monkeypatch, full, sentence):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 0 if place.name == full else 1 << 30)
    target = tmp_path / "engines" / "openvino-int8"
    with pytest.raises(ArtefactError if full else RuntimeError, match=sentence), atomic_directory(target):
        raise RuntimeError("basic_ios::clear: iostream error")
    assert not list(target.parent.iterdir())


def test_where_no_disk_tells_what_a_library_says_is_left(tmp_path, monkeypatch):
    """It became "the working directory was removed": no temporary folder could be written to."""

    def refuse(*_):
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    for name in ("tempfile.gettempdir", "trimodal.manifest.free_room"):
        monkeypatch.setattr(name, refuse)
    with pytest.raises(RuntimeError, match="iostream error"), told_when_full(tmp_path):
        raise RuntimeError("basic_ios::clear: iostream error")


def test_a_temporary_folder_that_fills_up_meanwhile_is_told(tmp_path, monkeypatch):
    """It is looked for before: afterwards it could not be found any more."""
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    room = {"engines": 1 << 30, "temporary": 0}
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: room[place.name])

    def fill_up() -> None:
        monkeypatch.setattr("tempfile._get_default_tempdir", lambda: pytest.fail("looked for again"))
        raise RuntimeError("basic_ios::clear: iostream error")

    full = "the disk of .*temporary is full"
    with pytest.raises(ArtefactError, match=full), told_when_full(tmp_path / "engines"):
        fill_up()


def test_a_refusal_of_ours_is_not_put_down_to_full_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(
        "trimodal.manifest.free_room", lambda place: 0 if place.name == "temporary" else 1 << 30
    )
    with pytest.raises(ArtefactError, match="agrees with torch"), told_when_full(tmp_path / "engines"):
        raise ArtefactError("int4 agrees with torch on 3% of the tokens")


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_the_old_artefact_comes_back_when_the_new_one_cannot_be_put_in_place(tmp_path, monkeypatch, error):
    target = tmp_path / "onnx-int8"
    with atomic_directory(target) as work:
        (work / "model.onnx").write_text("old")
    replace = os.replace

    def fails_once(source, destination):
        if destination == target and "-old" not in str(source):
            raise error("disk full")
        replace(source, destination)

    monkeypatch.setattr(os, "replace", fails_once)
    with pytest.raises(error, match="disk full"), atomic_directory(target) as work:
        (work / "model.onnx").write_text("new")
    assert (target / "model.onnx").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["onnx-int8"]


def test_builds_that_end_at_the_same_moment_replace_one_another(tmp_path: Path) -> None:
    """The directory of the other was there again between the two moves: it failed, and left its old one."""
    target = tmp_path / "onnx-int8"

    def build(number: int) -> None:
        for _ in range(100):
            with atomic_directory(target) as work:
                (work / "model.onnx").write_text(f"of {number}")

    with ThreadPoolExecutor(4) as pool:
        for built in [pool.submit(build, number) for number in range(4)]:
            built.result(60.0)
    assert [path.name for path in tmp_path.iterdir()] == ["onnx-int8"]
    assert (target / "model.onnx").read_text().startswith("of ")


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    program = "import os, sys; from pathlib import Path; from trimodal.manifest import atomic_directory\n"
    program += "with atomic_directory(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    target = tmp_path / "onnx-int8"
    killed = subprocess.run([sys.executable, "-c", program, str(target)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    with atomic_directory(target) as first:
        assert not left.exists()
        (tmp_path / ".onnx-int8-notes").mkdir()
        with atomic_directory(target):
            assert first.is_dir()  # another build is at work in it
    assert {path.name for path in tmp_path.iterdir()} == {"onnx-int8", ".onnx-int8-notes"}


def test_when_it_was_built(tmp_path: Path) -> None:
    assert built_at(tmp_path) == 0
    (tmp_path / MANIFEST).write_text("{}")
    assert built_at(tmp_path) == 0
    made = Manifest(
        task="llm", runtime="openvino", runtime_version="1", precision="int8", source="a", source_sha256="0",
        built_at="2026-11-26T05:30:34+00:00", command="build",
    )  # fmt: skip
    (tmp_path / MANIFEST).write_text(made.model_dump_json())
    assert built_at(tmp_path) == 1795671034


def test_a_build_is_put_in_place_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network's file systems: minutes of work are not lost for the lock of a moment."""

    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    for content in ("first", "second"):
        with atomic_directory(tmp_path / "built") as work:
            (work / "file").write_text(content)
    assert (tmp_path / "built" / "file").read_text() == "second"
    assert [one.name for one in tmp_path.iterdir()] == ["built"]


def test_a_build_that_has_no_room_is_refused_before_it_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 10e9)
    check_room(tmp_path / "not" / "there", 10e9)
    needed = r"at least 10,001 MB in .*not/there, whose disk has 10,000 MB left: free some, or name another"
    with pytest.raises(ArtefactError, match=needed):
        check_room(tmp_path / "not" / "there", 10.001e9)


def test_a_build_that_may_not_write_is_refused_before_it_begins(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(ArtefactError, match=r"nothing can be written to .*/file/1: name another directory"):
        check_room(tmp_path / "file" / "1", 0)
    monkeypatch.setattr("os.access", lambda place, mode: False)  # root may write everywhere
    with pytest.raises(ArtefactError, match=r"nothing can be written to .*/new: "):
        check_room(tmp_path / "new", 0)
