"""A checkpoint's own files, read as they are wherever the server runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers

from trimodal.llm.tokenizer import CheckpointTokenizer

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}«{{ message.role }}» {{ message.content }}\n{% endfor %}"
    "{% if messages[0].role == 'tool' %}{{ raise_exception('a tool cannot begin') }}{% endif %}«assistant»"
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = json.dumps({"bos_token": "<｜begin▁of▁sentence｜>"}, ensure_ascii=False)
    (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return tmp_path


def test_a_chat_is_rendered_with_the_checkpoints_own_tokens(checkpoint: Path) -> None:
    rendered = CheckpointTokenizer(checkpoint).render([{"role": "user", "content": "日本"}])
    assert rendered == "<｜begin▁of▁sentence｜>«user» 日本\n«assistant»"


def test_files_are_utf8_also_where_the_locale_is_not(checkpoint: Path) -> None:
    """As in Triton's stub in a container without a locale: embedded Python does not switch to UTF-8 there."""
    code = (
        "import sys; from pathlib import Path; from trimodal.llm.tokenizer import CheckpointTokenizer; "
        "CheckpointTokenizer(Path(sys.argv[1]))"
    )
    environment = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ended = subprocess.run(
        [sys.executable, "-c", code, str(checkpoint)], env=environment, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()


def test_a_long_text_has_the_same_ids_and_does_not_hold_the_others_up(checkpoint: Path) -> None:
    """`encode` holds Python's global lock to its end; a batch, even of one, does not."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    library = tokenizers.Tokenizer(tokenizers.models.BPE({mark: id for id, mark in enumerate(alphabet)}, []))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer = CheckpointTokenizer(checkpoint)
    text = "The while statement is used for repeated execution, naïve café 😀\n" * 100

    class Library:
        def encode(self, text: str, **options: bool) -> object:
            assert len(text) < 4096, "a long text goes another way"
            return library.encode(text, **options)

        def encode_batch_fast(self, texts: list[str], **options: bool) -> object:
            return library.encode_batch_fast(texts, **options)

    tokenizer._tokenizer = Library()
    for part in (text, text[:4096], text[:4095], "short"):
        assert len(tokenizer.encode(part)) >= len(part)
        assert tokenizer.encode(part) == library.encode(part, add_special_tokens=False).ids
        assert tokenizer.encode_prompt(part) == library.encode(part).ids


@pytest.mark.parametrize("text", ["abcdefgh", "abcdefgh" * 1000])
def test_a_prompt_is_neither_cut_nor_padded_as_its_file_asks(checkpoint: Path, text: str) -> None:
    library = tokenizers.Tokenizer(
        tokenizers.models.BPE({mark: id for id, mark in enumerate("abcdefgh")}, [])
    )
    library.enable_truncation(4)
    library.enable_padding(length=20_000)
    library.save(str(checkpoint / "tokenizer.json"))
    tokenizer = CheckpointTokenizer(checkpoint)
    ids = list(range(8)) * (len(text) // 8)
    assert (tokenizer.encode(text), tokenizer.encode_prompt(text)) == (ids, ids)


CHAT = [
    {"role": "user", "content": "time?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "clock", "arguments": {"z": "é"}}}],
    },
    {"role": "tool", "content": "12:30"},
]
CLOCK = {"type": "function", "function": {"name": "clock", "description": "é", "parameters": {}}}
CALL = '<tool_call>\n{"name": "clock", "arguments": {"z": "é"}}\n</tool_call>'


def test_a_template_without_a_place_for_functions_gets_them_as_text(checkpoint: Path) -> None:
    tokenizer = CheckpointTokenizer(checkpoint)
    told = tokenizer.render(CHAT, [CLOCK])
    assert told.startswith("<｜begin▁of▁sentence｜>«system» You may call these functions:\n{")
    assert f"«assistant» {CALL}\n«tool» 12:30\n" in told
    beside = tokenizer.render([{"role": "system", "content": "Be brief."}, *CHAT], [CLOCK])
    assert "«system» Be brief.\n\nYou may call" in beside
    assert "You may call" not in tokenizer.render(CHAT)


def test_a_template_with_a_place_for_functions_gets_them_as_they_are(checkpoint: Path) -> None:
    template = (
        "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for message in messages %}"
        "{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function.arguments.z }}"
        "{% endfor %}|{% endfor %}"
    )
    (checkpoint / "chat_template.jinja").write_text(template, encoding="utf-8")
    tokenizer = CheckpointTokenizer(checkpoint)
    assert tokenizer.render(CHAT, [CLOCK]) == json.dumps(CLOCK, ensure_ascii=False) + "time?|é|12:30|"
    assert tokenizer.render(CHAT) == "time?|é|12:30|"


def test_special_tokens_are_text_where_a_grammar_took_them_for_it(tmp_path: Path) -> None:
    vocabulary = {"<e>": 0, "<u>": 1, "a": 2}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))
    made.add_special_tokens(["<e>", "<u>"])
    made.decoder = tokenizers.decoders.Fuse()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<e>"}')
    tokenizer = CheckpointTokenizer(tmp_path)
    assert tokenizer.decode([2, 1, 2, 0]) == "aa"
    assert tokenizer.decode_whole([2, 1, 2, 0]) == "a<u>a"
    (tmp_path / "manifest.json").write_text('{"extra": {"eos_token_ids": [0, 1]}}')
    assert CheckpointTokenizer(tmp_path).decode_whole([2, 1, 2, 0]) == "aa"


LIBRARY = tokenizers.decoders


@pytest.mark.parametrize(
    ("vocabulary", "decoder"),
    [
        (sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), LIBRARY.ByteLevel()),
        (
            [f"<0x{byte:02X}>" for byte in range(256)] + ["▁", "a"],
            LIBRARY.Sequence([LIBRARY.Replace("▁", " "), LIBRARY.ByteFallback(), LIBRARY.Fuse()]),
        ),
    ],
    ids=["bytes as characters", "bytes by name"],
)
def test_a_tokens_bytes_are_its_part_of_the_text(
    checkpoint: Path, vocabulary: list[str], decoder: object
) -> None:
    library = tokenizers.Tokenizer(
        tokenizers.models.BPE({mark: id for id, mark in enumerate(vocabulary)}, [])
    )
    library.decoder = decoder
    library.add_special_tokens(["<|end|>"])
    library.save(str(checkpoint / "tokenizer.json"))
    tokenizer = CheckpointTokenizer(checkpoint)
    parts = {tokenizer.token_bytes(id): id for id in range(len(vocabulary))}
    text = "naïve 日本 😀\n"
    ids = [parts[bytes([byte])] for byte in text.encode()]
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.token_bytes(len(vocabulary)) == b"<|end|>"
    assert tokenizer.token_bytes(len(vocabulary) + 5) == b""
