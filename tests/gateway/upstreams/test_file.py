"""The file of servers: read, drained, and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.errors import SettingsError
from trimodal.gateway.upstreams.file import read_upstreams, set_drain


def test_a_server_is_drained_and_used_again(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.toml"
    file.write_text('[[upstream]]\naddress = "a:1"\n[[upstream]]\naddress = "grpcs://b:2"\ndrain = true\n')
    assert read_upstreams(file) == {"a:1": False, "grpcs://b:2": True}
    set_drain(file, "a:1", True)
    set_drain(file, "grpcs://b:2", False)
    assert read_upstreams(file) == {"a:1": True, "grpcs://b:2": False}
    with pytest.raises(SettingsError, match="there is no upstream c:3: a:1, grpcs://b:2"):
        set_drain(file, "c:3", True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "upstream"),
        ("upstream = 7", "upstream"),
        ("[[upstream]]\n", "address"),
        ('[[upstream]]\naddress = "nowhere"\n', "address"),
        ('[[upstream]]\naddress = "a:1"\ndraining = true\n', "draining"),
        ('[[upstream]]\naddress = "a:1"\n[[upstream]]\naddress = "a:1"\n', "twice"),
        ('[[upstream]]\naddress = "a:99999"\n', "a port is at most 65535"),
        ('[[upstream]]\naddress = "a:1:99999"\n', "a port is at most 65535"),
        ('[[upstream]]\naddress = "fd00::12:8001"\n', "'fd00::12:8001': host:port of Triton's gRPC endpoint"),
        ('[[upstream]]\naddress = "a:8001:8003:9"\n', "'a:8001:8003:9': host:port of Triton's gRPC endpoint"),
        ("[[upstream]]\naddress = 8001\n", "address"),
        ("[[upstream]", "upstreams.toml"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "upstreams.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=told) as caught:
        read_upstreams(file)
    assert str(caught.value).startswith(str(file))


FILE = """\
# Rack 1 is in the cellar.

[[upstream]]   # the old one
address = "a:1"
drain = false  # until May

# Rack 2
[[ upstream ]]
  "address" = "b:2"  # [[upstream]] of Anna's
# goes first
"""


def test_comments_and_the_form_of_a_file_stay(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.toml"
    file.write_text(FILE)
    file.chmod(0o640)
    set_drain(file, "a:1", True)
    assert file.read_text() == FILE.replace("drain = false  #", "drain = true  #")
    set_drain(file, "b:2", True)
    set_drain(file, "a:1", False)
    assert file.read_text() == FILE.replace("drain = false  # until May\n", "").replace(
        "Anna's\n", "Anna's\ndrain = true\n"
    )
    assert read_upstreams(file) == {"a:1": False, "b:2": True}
    assert file.stat().st_mode & 0o777 == 0o640, "who could read it still can"


@pytest.mark.parametrize(
    "text",
    [
        'upstream = [{address = "a:1"}, {address = "b:2"}]\n',
        '[[upstream]]\n"address" = "a:1"\n"drain" = true\n[[upstream]]\naddress = "b:2"',
    ],
)
def test_a_file_of_another_form_is_written_anew(tmp_path: Path, text: str) -> None:
    file = tmp_path / "upstreams.toml"
    file.write_text(text)
    first = next(iter(read_upstreams(file)))
    before = read_upstreams(file)
    for drain in (True, False):
        set_drain(file, first, drain)
        assert read_upstreams(file) == {**before, first: drain}
