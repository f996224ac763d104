"""Writes a report as one HTML file: styles and pictures are inside, nothing is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from trimodal.errors import SettingsError
from trimodal.report.values import Figure, Report, Section, Table

_STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #dfe4ea; --wash: #f5f7f9; --accent: #2c6fbb; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: var(--ink);
  max-width: 1120px; margin: 0 auto; padding: 32px 24px 64px; background: #fff; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 44px 0 8px; padding-top: 16px; border-top: 1px solid var(--line); }
p { margin: 6px 0; max-width: 78ch; }
.summary { font-size: 16px; color: var(--soft); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 16px 0; padding: 12px 16px;
  background: var(--wash); border-radius: 8px; font-size: 13px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 14px 0 4px; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0 0 6px; font-size: 14px; }
th, td { padding: 4px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th.name, td.name { text-align: left; } th:first-child, td:first-child { padding-left: 4px; }
.warnings { background: #fff6e5; border-left: 4px solid #e0a100; border-radius: 4px; padding: 8px 14px;
  margin: 12px 0; font-size: 14px; } .warnings p { max-width: none; }
tbody tr:hover { background: var(--wash); }
.note, figcaption { color: var(--soft); font-size: 13px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(500px, 100%), 1fr)); gap: 20px; }
figure { margin: 14px 0 0; } figure svg { width: 100%; height: auto; display: block; }
figure b { font-size: 14px; }
@media print { body { max-width: none; padding: 0; } figure { break-inside: avoid; } }
"""


def write_html(path: Path, report: Report) -> None:
    """Writes the page. Raises: SettingsError: the file cannot be written."""
    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"--html {path}: cannot be written: {error.strerror}") from None


def page(report: Report) -> str:
    """Returns the page's source."""
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts)
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body>\n"
        f'<h1>{escape(report.title)}</h1>\n<p class="summary">{escape(report.summary)}</p>\n'
        + (f"<dl>{facts}</dl>\n" if facts else "")
        + "".join(map(_section, report.sections))
        + "</body></html>\n"
    )


def _section(section: Section) -> str:
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in section.text.split("\n\n") if text.strip())
    figures = "".join(map(_figure, section.figures))
    warnings = "".join(f"<p>{escape(text)}</p>" for text in section.warnings)
    return (
        f"<section><h2>{escape(section.title)}</h2>{paragraphs}"
        + (f'<div class="warnings">{warnings}</div>' if warnings else "")
        + "".join(map(_table, section.tables))
        + (f'<div class="figures">{figures}</div>' if figures else "")
        + "</section>\n"
    )


def _table(table: Table) -> str:
    kinds = ['class="name"' if index < table.names else "" for index in range(len(table.columns))]

    def cells(tag: str, texts: Sequence[str]) -> str:
        shown = (f"<{tag} {kind}>{escape(text)}</{tag}>" for kind, text in zip(kinds, texts, strict=True))
        return f"<tr>{''.join(shown)}</tr>\n"

    rows = "".join(cells("td", row) for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="scroll"><table><caption>{escape(table.title)}</caption>'
        f"<thead>{cells('th', table.columns)}</thead><tbody>\n{rows}</tbody></table></div>{note}"
    )


def _figure(figure: Figure) -> str:
    # The only markup that is taken as it is: `draw` of report.plots made it.
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.caption else ""
    return f"<figure><b>{escape(figure.title)}</b>{figure.svg}{caption}</figure>"
