from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trimodal.errors import SettingsError
from trimodal.report.html import page, write_html
from trimodal.report.plots import cdf, lines
from trimodal.report.values import Report, Section, Table

BAD = "<script>alert('x')</script> & \"more\""


def report() -> Report:
    table = Table(BAD, ["side", BAD], [[BAD, "1"]], note=BAD)
    figures = [
        cdf("CDF", {"served": [1.0, 2.0, 300.0], "none": [], BAD: [4.0]}),
        lines("lines", {"served": [(1.0, 2.0), (2.0, 5.0)]}, x="a", y="b", labels={"served": ["1", "8"]}),
    ]
    return Report(BAD, BAD, [Section(BAD, f"{BAD}\n\nsecond", [table], figures)], [(BAD, BAD)])


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.fetched.append(f"{tag} {name}={value}")
            if name == "id":
                self.ids.append(value or "")


def read(source: str) -> Reader:
    reader = Reader()
    reader.feed(source)
    return reader


def test_the_page_needs_nothing_else_and_takes_no_text_as_markup() -> None:
    pytest.importorskip("matplotlib")
    source = page(report())
    reader = read(source)
    assert not reader.fetched
    assert "script" not in reader.tags
    assert reader.tags.count("svg") == 2
    assert reader.tags.count("table") == 1
    assert "url(http" not in source
    assert "@import" not in source


def test_figures_of_one_page_share_no_id_and_are_whole() -> None:
    pytest.importorskip("matplotlib")
    figures = report().sections[0].figures
    ids = [one for figure in figures for one in read(figure.svg).ids]
    assert len(ids) == len(set(ids)) > 0
    for figure in figures:
        ElementTree.fromstring(figure.svg)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--html .*none"):
        write_html(tmp_path / "none" / "report.html", Report("a", "b", []))
    write_html(tmp_path / "report.html", Report("a", "b", []))
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
