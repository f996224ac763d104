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
        ("[[upstream]", "upstreams.toml"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "upstreams.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=told) as caught:
        read_upstreams(file)
    assert str(caught.value).startswith(str(file))
