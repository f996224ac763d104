"""A checkpoint's own files, read as they are wherever the server runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers

from trimodal.errors import InvalidArgument
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


def test_what_the_template_refuses_is_the_clients_fault(checkpoint: Path) -> None:
    with pytest.raises(InvalidArgument, match="the chat template refuses them: a tool cannot begin"):
        CheckpointTokenizer(checkpoint).render([{"role": "tool", "content": ""}])


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
