"""Prints the table of bad inputs and the answers they get:

python -m tests.e2e.bad_input.report > bad_inputs.md
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.bad_input import embedding, http, llm, llm_http, recognize, speech, vision
from tests.e2e.bad_input.server import MODELS, changes
from tests.e2e.bad_input.wire import Answer, Row, Wire
from tests.e2e.conftest import options
from trimodal.server.process import TritonServer

ROWS: list[Row] = [
    *llm.ROWS,
    *llm_http.ROWS,
    *vision.ROWS,
    *embedding.ROWS,
    *speech.ROWS,
    *recognize.ROWS,
    *http.ROWS,
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
