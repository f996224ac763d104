"""System messages that the operator calls public."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.errors import SettingsError
from trimodal.llm.frontend.public_prompts import check_public_prompts, public_tokens, read_public_prompts
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer


def read(directory: Path, names: str, **settings: object) -> dict[str, list[int]]:
    values = {"engine": "fake", "public_prompts": names, "version_directory": directory / "1", **settings}
    return read_public_prompts(LlmSettings.model_validate(values), ByteTokenizer())


def test_what_chats_begin_with_is_public_in_whole_blocks(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("You help. " * 5 + "\n")
    (tmp_path / "long.txt").write_text("Du hilfst müden Füchsen. " * 8)
    (tmp_path / "tiny.txt").write_text("Help.")
    public = read(tmp_path, "tiny.txt short.txt long.txt")
    assert {name: len(ids) for name, ids in public.items()} == {"short.txt": 64, "long.txt": 224}
    assert bytes(public["short.txt"]) == ("system: " + ("You help. " * 5).strip() + "\nuser: ").encode()[:64]


def test_the_whole_blocks_that_a_prompt_begins_alike_with_are_public_but_never_all_of_it() -> None:
    public = [[1] * 96, [1] * 32 + [2] * 32]
    assert [public_tokens([1] * length, public) for length in (97, 96, 65, 64, 33, 32)] == [
        *(96, 64, 64, 32, 32, 0)
    ]
    assert public_tokens([1] * 32 + [2] * 40, public) == 64
    assert public_tokens([1] * 63 + [3] * 40, public) == 32, "of one that goes on in another way"
    assert public_tokens([3] * 80, public) == 0


def test_without_the_cache_nothing_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "missing.txt", enable_prefix_caching=False) == {}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        (b"\xff\xfe", "utf-8"),
        (b"x" * 3000, "has 3015 tokens: a prompt may have 2048"),
        (b"x" * 4001, "has more bytes than max_prompt_bytes, 4000"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "system.txt").write_bytes(content)
    with pytest.raises(SettingsError, match=r"public_prompts': system\.txt") as caught:
        read(tmp_path, "system.txt", max_prompt_bytes=4000)
    assert problem in str(caught.value)


def test_one_that_the_engine_cannot_hold_is_named() -> None:
    check_public_prompts({"system.txt": [1] * 64}, 64)
    with pytest.raises(SettingsError, match=r"system\.txt has 64 tokens: a prompt may have 63"):
        check_public_prompts({"system.txt": [1] * 64}, 63)


def test_an_engine_that_salts_whole_prompts_refuses_them() -> None:
    with pytest.raises(ValueError, match="'vllm' does not read 'public_prompts' \\(read by openvino"):
        LlmSettings.model_validate({"engine": "vllm", "public_prompts": "system.txt"})
