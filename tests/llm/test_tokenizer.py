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
