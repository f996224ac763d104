import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from trimodal.errors import SettingsError
from trimodal.gateway import keys, tables
from trimodal.gateway.keys import Key, KeyRing, add_key, hashed, read_keys, revoke_key
from trimodal.gateway.tables import WatchedFile


def test_a_key_is_shown_once_and_kept_as_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "new" / "keys.toml"
    key = Key(name='a "quoted" näme', tenant="t", tier="premium", models=("llm",), requests_per_minute=5)
    secret = add_key(file, key)
    assert secret.startswith("tm-")
    assert len(secret) > 40
    assert secret not in file.read_text(encoding="utf-8")
    assert read_keys(file) == [key.model_copy(update={"hash": hashed(secret)})]
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["keys.toml"]


def test_a_file_stays_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What root revoked still held: the file was root's from then on, and the gateway could not read it."""
    file, given = tmp_path / "keys.toml", list[tuple[int, int]]()
    add_key(file, Key(name="a"))
    owner = file.stat()
    monkeypatch.setattr(os, "chown", lambda path, user, group: given.append((user, group)))
    revoke_key(file, "a")
    assert given == [(owner.st_uid, owner.st_gid)]


def test_without_a_lock_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two changes at the same moment one would be lost, and a revoked key would hold on."""
    file = tmp_path / "keys.toml"
    add_key(file, Key(name="a"))
    before = file.read_bytes()

    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match="No locks available"):
        add_key(file, Key(name="b"))
    with pytest.raises(OSError, match="No locks available"):
        revoke_key(file, "a")
    assert file.read_bytes() == before


def named(path: os.PathLike[str] | str | int) -> Path:
    """The path of what may be given by its handle."""
    return Path(os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else path)


def test_a_first_file_is_its_directorys_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service whose first key root had made ended at each start: it could not read the file."""
    given = list[tuple[str, int, int]]()
    monkeypatch.setattr(os, "chown", lambda path, *ids: given.append((named(path).parent.name, *ids)))
    add_key(tmp_path / "etc" / "keys.toml", Key(name="a"))
    owner = tmp_path.stat()
    assert given == [("etc", owner.st_uid, owner.st_gid)]


def test_where_everybody_may_write_a_first_file_is_not_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[object]()
    monkeypatch.setattr(os, "chown", lambda *told: given.append(told))
    tmp_path.chmod(0o1777)
    add_key(tmp_path / "keys.toml", Key(name="a"))
    assert not given


@pytest.mark.parametrize("member", [True, False])
def test_a_file_of_another_owner_stays_readable_to_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, member: bool
) -> None:
    """Revoked keys still held: the gateway, of another user, could not read the file any more."""
    file, stat = tmp_path / "keys.toml", os.stat
    add_key(file, Key(name="a"))
    file.chmod(0o660)
    group = [0]

    def chown(path: str, user: int, to: int) -> None:
        if user != -1 or not member:
            raise PermissionError
        group[0] = to

    def of_others(path: os.PathLike[str] | str | int, **more: bool) -> os.stat_result:
        """The file is of user 77777 and group 88888, what is new of group 0."""
        found = list(stat(path, **more))
        if named(path) == file:
            found[4:6] = 77777, 88888
        elif named(path).name.startswith(".keys.toml"):
            found[5] = group[0]
        return os.stat_result(found)

    with monkeypatch.context() as patch:
        patch.setattr(os, "chown", chown)
        patch.setattr(os, "stat", of_others)
        revoke_key(file, "a")
    assert file.stat().st_mode & 0o777 == (0o660 if member else 0o600)
    assert "keys.toml was of user 77777" in caplog.text


def test_root_follows_no_link_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service owns the directory: its link would lead root's command to any file."""
    link, file = tmp_path / "keys.toml", tmp_path / "nologin"
    link.symlink_to(file)
    found = list(link.lstat())
    found[4] = 77777
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "lstat", lambda _: os.stat_result(found))
    with pytest.raises(SettingsError, match="a link of user 77777, which root does not follow"):
        add_key(link, Key(name="a"))
    assert not file.exists()


def test_root_follows_no_link_that_comes_after_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = tmp_path / "keys.toml", tmp_path / "other"
    other.write_text("root's\n")
    add_key(file, Key(name="a"))
    edited = tables._edited

    def swap(*given: Any) -> Any:
        file.unlink()
        file.symlink_to(other)
        return edited(*given)

    monkeypatch.setattr(tables, "_edited", swap)
    add_key(file, Key(name="b"))
    assert other.read_text() == "root's\n"
    assert [key.name for key in read_keys(file)] == ["a", "b"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    link, file = tmp_path / "keys.toml", tmp_path / "elsewhere" / "real.toml"
    link.symlink_to(file)
    for name in ("a", "b"):
        add_key(link, Key(name=name))
    revoke_key(link, "a")
    assert link.is_symlink()
    assert [key.name for key in read_keys(file)] == ["b"]


def test_the_comment_of_a_file_does_not_become_a_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    for name in ("a", "b"):
        add_key(file, Key(name=name))
    rows = file.read_text().partition("[[key]]")[2].replace("\n\n", "\n")
    file.write_text(f"# Ask Anna.\n[[key]]{rows}")
    revoke_key(file, "a")
    assert file.read_text().startswith('# Ask Anna.\n\n[[key]]\nname = "b"')


def test_commands_at_the_same_time_lose_no_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    names = [f"key {number}" for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: add_key(file, Key(name=name)), names))
    assert sorted(key.name for key in read_keys(file)) == sorted(names)


def test_comments_stay_and_go_with_their_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    add_key(file, Key(name="a"))
    first = file.read_text() + "# until May\n"
    file.write_text(first + "\n# of the bank\n")
    add_key(file, Key(name="b", models=("llm",)))
    both = file.read_text()
    assert both.startswith(first + "\n# of the bank\n")
    file.write_text(both.replace('\n[[key]]\nname = "b"', '[[key]]\nname = "b"  # [[key]]'))
    add_key(file, Key(name="c"))
    third = file.read_text().partition('[[key]]\nname = "c"')[2]
    revoke_key(file, "b")
    assert file.read_text().rstrip() == first + '\n\n[[key]]\nname = "c"' + third.rstrip()
    assert [key.name for key in read_keys(file)] == ["a", "c"]


@pytest.mark.parametrize("field", ["name", "tenant", "tier"])
@pytest.mark.parametrize("sign", ["\x00", "\x1b", "\n", "\x7f", "\x9b"])
def test_control_characters_are_refused(field: str, sign: str) -> None:
    with pytest.raises(ValidationError, match=field):
        Key(**{"name": "a", field: f"a{sign}b"})


def test_names_are_unique_and_revoked_by(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    first, second = add_key(file, Key(name="a")), add_key(file, Key(name="b"))
    assert first != second
    with pytest.raises(SettingsError, match="named 'a' exists"):
        add_key(file, Key(name="a"))
    revoke_key(file, "a")
    assert [key.name for key in read_keys(file)] == ["b"]
    with pytest.raises(SettingsError, match="no key is named 'a'"):
        revoke_key(file, "a")


def test_a_running_gateway_sees_the_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_LOOK_S", 0.0)
    file = tmp_path / "keys.toml"
    secret = add_key(file, Key(name="a"))
    ring = KeyRing(file)
    found = ring.find(secret)
    assert found is not None
    assert found.name == "a"
    assert ring.find("tm-other") is None
    later = add_key(file, Key(name="b"))
    assert ring.find(later) is not None
    revoke_key(file, "a")
    assert ring.find(secret) is None
    assert not ring.holds(found)


@pytest.mark.parametrize("broken", ["[[key", "[[key]]\nname = 3", "gone"])
def test_a_file_that_breaks_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    monkeypatch.setattr(keys, "_LOOK_S", 0.0)
    file = tmp_path / "keys.toml"
    secret = add_key(file, Key(name="a"))
    ring = KeyRing(file)
    file.unlink() if broken == "gone" else file.write_text(broken)
    assert ring.find(secret) is not None
    assert "what the file had before stays in force" in caplog.text
    assert len(caplog.records) == 1
    assert ring.find(secret) is not None
    assert len(caplog.records) == 1, "said once for each change"


def test_a_file_that_could_not_be_read_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Too many files were open, say: the file is the same when that has passed."""
    file, failing = tmp_path / "keys.toml", False

    def read(file: Path) -> str:
        if failing:
            raise SettingsError(f"{file}: too many open files")
        return file.read_text()

    file.write_text("old")
    watched = WatchedFile(file, read)
    file.write_text("newer")
    failing = True
    assert [watched.changed(), watched.changed()] == [False, False]
    assert len(caplog.records) == 1
    failing = False
    assert [watched.changed(), watched.changed()] == [True, False]
    assert watched.contents == "newer"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[key]]\nname = 'a'\n", "key 'a' has no hash"),
        ("[[key]]\nname = ''\nhash = 'sha256:" + "0" * 64 + "'", "name"),
        ("[[key]]\nname = 'a'\nhash = 'plain'", "hash"),
        ("[[key]]\nname = 'a'\ntokens = 3", "tokens"),
        ("[[key]]\nname = 'a'\nmax_streams = -1", "max_streams"),
        ("key = 3", "key"),
        *((f"key = {rows}", "parameter 'key.0'") for rows in ("[1]", "[[]]", "[true]", '["a"]')),
        ("key = " + "[" * 5000, "nested too deeply"),
        ("\xff", "keys.toml"),
        (None, "no such file"),
        (("[[key]]\nname = 'a'\nhash = 'sha256:" + "0" * 64 + "'\n") * 2, "two keys are named 'a'"),
    ],
)
def test_a_malformed_file_names_the_field(tmp_path: Path, text: str | None, message: str) -> None:
    """A running gateway answered everybody 500."""
    file = tmp_path / "keys.toml"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match=message) as caught:
        KeyRing(file)
    assert str(file) in str(caught.value)
