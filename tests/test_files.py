"""A file is replaced whole or not at all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from tests.doubles.full_disk import ROOM, full_disk
from trimodal.files import alone_in, read_at_most, replace_file

LONG = b"x" * (4 * ROOM)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "config.pbtxt"
    file.write_bytes(b"before")
    with full_disk(), pytest.raises(OSError, match="too large") as raised:
        replace_file(file, LONG)
    assert raised.value.filename == str(file)  # and not the temporary one
    assert file.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_no_half_of_a_new_file(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(OSError, match="too large"):
        replace_file(tmp_path / "figures.json", LONG)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o666])
def test_the_mode_stays(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(mode)
    replace_file(file, b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", mode)


def test_a_new_file_is_as_readable_as_the_mask_lets_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_the_mask_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the process's: what another thread made meanwhile was for everybody to write."""
    monkeypatch.delattr(os, "umask")
    replace_file(tmp_path / "file", b"new")


def test_the_content_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between the two would leave an empty file."""
    file, synced = tmp_path / "keys.toml", []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_size, file.exists())))
    replace_file(file, b"content")
    assert synced == [(7, False)]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"before")
    (tmp_path / "link").symlink_to("target")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    replace_file(tmp_path / "pipe", b"figures")
    assert os.read(reader, 100) == b"figures"
    os.close(reader)
    with pytest.raises(OSError, match="No space left"):
        replace_file(Path("/dev/full"), b"figures")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_file_is_written_where_it_is_if_nothing_can_lie_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)
    replace_file(tmp_path / "mounted", b"new")
    assert (tmp_path / "mounted").read_bytes() == b"new"


def test_a_mounted_file_is_written_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "replace", busy)
    replace_file(tmp_path / "mounted", b"new")
    assert (tmp_path / "mounted").read_bytes() == b"new"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_key_file_is_never_half_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one lets nobody in."""

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "replace", busy)
    (tmp_path / "mounted").write_bytes(b"before")
    with pytest.raises(OSError, match="busy"):
        replace_file(tmp_path / "mounted", b"new", private=True)
    assert (tmp_path / "mounted").read_bytes() == b"before"


def test_a_pipe_is_written_to() -> None:
    """As /dev/stdout is before `| jq`: its real path is no file's."""
    read, write = os.pipe()
    try:
        replace_file(Path(f"/dev/fd/{write}"), b"figures")
        assert os.read(read, 100) == b"figures"
    finally:
        os.close(read)
        os.close(write)


def test_who_asks_for_the_same_folder_waits(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with alone_in(tmp_path):
            order.append("second")

    waiting = threading.Thread(target=second)
    with alone_in(tmp_path):
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join(10.0)
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match="No locks available") as caught, alone_in(tmp_path):
        pytest.fail("others may change it, too")
    assert caught.value.filename == str(tmp_path)
    ran = False
    with alone_in(tmp_path, where_possible=True):
        ran = True
    assert ran


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").write_bytes(b"x" * 1000)
    assert read_at_most(tmp_path / "full", 1000) == b"x" * 1000
    for file in (tmp_path / "full", Path("/dev/zero")):
        with pytest.raises(OSError, match="it has more than 999 bytes") as raised:
            read_at_most(file, 999)
        assert raised.value.filename == str(file)
