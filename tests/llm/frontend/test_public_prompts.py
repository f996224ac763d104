"""System messages that the operator calls public."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.errors import SettingsError
from trimodal.llm.frontend.public_prompts import public_tokens, read_public_prompts
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer


def read(directory: Path, names: str, **settings: object) -> list[list[int]]:
    values = {"engine": "fake", "public_prompts": names, "version_directory": directory / "1", **settings}
    return read_public_prompts(LlmSettings.model_validate(values), ByteTokenizer())


def test_what_chats_begin_with_is_public_in_whole_blocks_the_longest_first(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("You help. " * 5 + "\n")
    (tmp_path / "long.txt").write_text("Du hilfst müden Füchsen. " * 8)
    (tmp_path / "tiny.txt").write_text("Help.")
    public = read(tmp_path, "tiny.txt short.txt long.txt")
    assert [len(one) for one in public] == [224, 64]
    assert bytes(public[1]) == ("system: " + ("You help. " * 5).strip() + "\nuser: ").encode()[:64]


def test_a_prompt_has_the_longest_that_it_goes_beyond() -> None:
    public = [[1] * 64, [1] * 32]
    assert [public_tokens([1] * length, public) for length in (65, 64, 33, 32)] == [64, 32, 32, 0]
    assert public_tokens([2] * 80, public) == 0


def test_without_the_cache_nothing_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "missing.txt", enable_prefix_caching=False) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        (b"\xff\xfe", "utf-8"),
        (b"x" * 3000, "has 3015 tokens: a prompt may have 2048"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "system.txt").write_bytes(content)
    with pytest.raises(SettingsError, match=r"public_prompts': system\.txt") as caught:
        read(tmp_path, "system.txt")
    assert problem in str(caught.value)
