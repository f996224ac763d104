"""`trimodal classify`: labels of image files and folders, in batches."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trimodal.cli import common
from trimodal.files import read_at_most

if TYPE_CHECKING:
    from trimodal.client import Client

SUFFIXES = (".avif", ".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
# As it is printed with --json. `ms`: of the request that the file travelled in.
Row = dict[str, Any]


def classify(
    files: list[Path] = typer.Argument(..., help="Images, or folders of images."),
    top_k: int = typer.Option(1, min=1, help="Labels an image, best first."),
    url: common.Url = common.URL,
    timeout: float = typer.Option(60.0, min=0.1, help="Longest wait for a batch, seconds."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line."),
) -> None:
    """Classify image files."""
    paths, skipped = expand(files)
    if skipped:
        shown = ", ".join(map(str, skipped[:3])) + (", …" if len(skipped) > 3 else "")
        typer.echo(f"trimodal: {len(skipped)} skipped, as no {', '.join(SUFFIXES)}: {shown}", err=True)
    if not paths:
        typer.echo(f"trimodal: no {', '.join(SUFFIXES)} files there", err=True)
        raise typer.Exit(1)

    async def ask() -> list[Row]:
        async with common.connect(url, silence=timeout) as client:
            return await label(client, paths, top_k)

    with common.one_sentence():
        rows = common.run(ask())
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
    else:
        _print_table(rows)
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def expand(files: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """The files, with folders replaced by the images in them and below, by name; what else is in these."""
    paths: list[Path] = []
    skipped: list[Path] = []
    for path in files:
        if not path.is_dir():
            paths.append(path)
            continue
        for file in sorted(filter(Path.is_file, path.rglob("*"))):
            (paths if file.suffix.lower() in SUFFIXES else skipped).append(file)
    return paths, skipped


async def label(client: Client, paths: Sequence[Path], top_k: int) -> list[Row]:
    """One row a file, in order; a file that cannot be read or is refused harms no other."""
    from trimodal.client.batches import in_batches
    from trimodal.errors import RequestError

    async def ask(part: Sequence[Path]) -> list[Row]:
        contents = [_read(path) for path in part]
        images = [content for content in contents if isinstance(content, bytes)]
        started = time.perf_counter()
        labels = iter(await client.classify(images, top_k=top_k, return_exceptions=True))
        ms = round((time.perf_counter() - started) * 1e3, 3)
        rows: list[Row] = []
        for path, content in zip(part, contents, strict=True):
            if isinstance(content, str):
                rows.append({"file": str(path), "error": content, "code": "FILE", "ms": None})
            elif isinstance(outcome := next(labels), RequestError):
                rows.append({"file": str(path), "error": str(outcome), "code": outcome.code, "ms": ms})
            else:
                predictions = [{"label": one.label, "score": round(one.score, 6)} for one in outcome]
                rows.append({"file": str(path), "predictions": predictions, "ms": ms})
        return rows

    return await in_batches(paths, await client.max_batch_size("vision") or 1, ask)


def _read(path: Path) -> bytes | str:
    """The contents, or why there are none."""
    try:
        return read_at_most(path)
    except OSError as error:
        return (error.strerror or "cannot be read").lower()


def _print_table(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("file", "label", "score", "ms", box=None, pad_edge=False, header_style="bold")
    table.columns[0].overflow = table.columns[1].overflow = "fold"
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        file, ms = Text(row["file"]), "" if row["ms"] is None else f"{row['ms']:.1f}"
        if "error" in row:
            table.add_row(file, Text(row["error"], style="red"), "", ms)
        for one in row.get("predictions", ()):
            table.add_row(file, Text(one["label"]), f"{one['score']:.4f}", ms)
            file, ms = Text(""), ""  # once a file
    Console().print(table)
