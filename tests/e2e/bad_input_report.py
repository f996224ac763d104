"""Prints the table of bad inputs and the answers they get:

python -m tests.e2e.bad_input_report > bad_inputs.md
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from trimodal.server.process import TritonServer

from . import (
    bad_input_embedding,
    bad_input_http,
    bad_input_llm,
    bad_input_llm_http,
    bad_input_recognize,
    bad_input_speech,
    bad_input_vision,
)
from .bad_input_server import MODELS, changes
from .bad_input_wire import Answer, Row, Wire
from .conftest import options

ROWS: list[Row] = [
    *bad_input_llm.ROWS,
    *bad_input_llm_http.ROWS,
    *bad_input_vision.ROWS,
    *bad_input_embedding.ROWS,
    *bad_input_speech.ROWS,
    *bad_input_recognize.ROWS,
    *bad_input_http.ROWS,
]


def table(rows: Sequence[tuple[Row, Answer]]) -> str:
    """Markdown: model, input, transport, status, sentence."""
    lines = ["| model | input | transport | status | answer |", "|---|---|---|---|---|"]
    for row, answer in rows:
        told = "(served)" if answer.served else " ".join(answer.message.split())
        told = told[:157] + "…" if len(told) > 160 else told
        cells = (row.model, row.name, row.transport, answer.status, told)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = TritonServer(options(MODELS, changes(Path(directory))))
        with server:
            wire = Wire(server.grpc_url, server.http_url)
            print(table([(row, row.send(wire)) for row in ROWS]))
            wire.close()


if __name__ == "__main__":
    main()
