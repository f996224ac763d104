"""Makes the table "Prompt lookup on real text": what it gains, and whether the engine goes on with it.

    python -m benchmarks.llm.speculation --artefact $PWD/model_repository/llm/1/openvino-int8

Chats about paragraphs of this project's own pages: repeat one, as an editor or an extraction does, and sum
one up. Each engine answers all of a kind; `prompt_lookup` is judged by the engine itself, as when it serves.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import NARROW, make_table
from trimodal.build_support import operator_errors
from trimodal.llm.engines.protocol import EngineRequest, Sampling, open_engine
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import CheckpointTokenizer

PAGES = ("architecture", "limitations", "scheduling", "reliability", "cache", "benchmarks")
KINDS = {"copies": "Repeat this text word for word:\n\n{}", "summaries": "Sum this text up:\n\n{}"}


def paragraphs(count: int) -> list[str]:
    """Paragraphs of 300 to 700 letters."""
    folder = Path(__file__).parents[2] / "docs"
    texts = [part for page in PAGES for part in (folder / f"{page}.md").read_text().split("\n\n")]
    return [text for text in texts if 300 <= len(text) <= 700 and text[0].isalpha()][:count]


def main(
    artefact: Annotated[Path, typer.Option(help="directory of an OpenVINO engine")],
    count: Annotated[int, typer.Option(min=1, help="paragraphs of each kind")] = 8,
    together: Annotated[int, typer.Option(min=1, max=16, help="chats at the same time")] = 1,
    tokens: Annotated[int, typer.Option(min=2)] = 128,
) -> None:
    """Opens an engine for each row."""
    with operator_errors():
        tokenizer = CheckpointTokenizer(artefact)
        table = make_table(
            f"{artefact.name}, {together} at a time", "text|drafting|tok/s|tokens a step|in the end", **NARROW
        )
        for kind, ask in KINDS.items():
            chats = [[{"role": "user", "content": ask.format(text)}] for text in paragraphs(count)]
            prompts = [tokenizer.encode(tokenizer.render(chat)) for chat in chats]
            for speculation in ("none", "prompt_lookup"):
                table.add_row(kind, speculation, *answered(artefact, speculation, prompts, together, tokens))
    Console(highlight=False).print(table)


def answered(
    artefact: Path, speculation: str, prompts: list[list[int]], together: int, tokens: int
) -> list[str]:
    """Tokens a second, tokens a decoding step, and whether it still drafts."""
    values = {"artefact": str(artefact), "speculation": speculation, "enable_prefix_caching": False}
    engine = open_engine(LlmSettings.model_validate(values))
    began, made = time.perf_counter(), 0
    for first in range(0, len(prompts), together):
        for id, prompt in enumerate(prompts[first : first + together]):
            engine.add(EngineRequest(id, prompt, Sampling(tokens)))
        while engine.has_work():
            made += sum(len(output.token_ids) for output in engine.step())
    seconds, stats = time.perf_counter() - began, engine.stats()
    engine.close()
    drafts = "drafts" if stats.speculating else "switched off" if speculation != "none" else ""
    return [f"{made / seconds:.1f}", f"{stats.decoded_tokens / max(1, stats.decode_slots):.2f}", drafts]


if __name__ == "__main__":
    run_command(main)
