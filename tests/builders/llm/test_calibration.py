"""Calibration texts: files and directories in, the data set layout of TensorRT-LLM's quantiser out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.builders.scripts import importable
from trimodal.errors import ArtefactError


@pytest.fixture
def calibration() -> Iterator[ModuleType]:
    with importable():
        from steps.llm import calibration as llm_calibration

        yield llm_calibration


def test_lines_paragraphs_and_json_lines(calibration: ModuleType, tmp_path: Path) -> None:
    lines, paragraphs, rows = (tmp_path / name for name in ("lines.txt", "paragraphs.txt", "rows.jsonl"))
    lines.write_text("\n".join(f"line {index}" for index in range(128)))
    paragraphs.write_text("\n\n".join(f"a\nparagraph {index}" for index in range(130)))
    rows.write_text("\n".join(json.dumps({"id": index, "text": f"röw {index}"}) for index in range(200)))
    assert calibration.read_calibration(lines).texts[-1] == "line 127"
    assert calibration.read_calibration(paragraphs).texts[0] == "a\nparagraph 0"
    assert calibration.read_calibration(rows).figures()["samples"] == 200


def test_a_directory_takes_each_file_and_each_row(calibration: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for index in range(100):
        (tmp_path / "deep" / f"{index:03}.txt").write_text(f"one\n\ntext {index}")
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"text": f"row {i}"}) for i in range(40)))
    (tmp_path / "notes.md").write_text("not a sample")
    found = calibration.read_calibration(tmp_path)
    assert len(found.texts) == 140
    assert found.texts[0] == "one\n\ntext 0"
    assert found.name == tmp_path.name


def test_of_too_many_texts_512_are_spread_over_all(calibration: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("\n".join(str(index) for index in range(1024)))
    assert calibration.read_calibration(path).texts == [str(index) for index in range(0, 1024, 2)]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("few.txt", "one\ntwo", "few.txt holds 2 texts: 128 to 512 are needed"),
        ("empty.txt", "", "holds 0 texts"),
        ("rows.jsonl", '{"content": "x"}', "is not one JSON object with a key text a line"),
        ("rows.jsonl", "[1]", "is not one JSON object with a key text a line"),
        ("rows.jsonl", '{"text": 5}', "the key text holds something else than a string"),
        ("missing.txt", None, "cannot be read as UTF-8 text"),
    ],
)
def test_unfit_texts_are_one_sentence(
    calibration: ModuleType, tmp_path: Path, name: str, content: str | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ArtefactError, match=expected):
        calibration.read_calibration(tmp_path / name)


def test_the_data_set_has_one_split_and_one_column(calibration: ModuleType, tmp_path: Path) -> None:
    texts = calibration.Calibration("texts", ["one\nline", "zwei ü"])
    folder = calibration.write_dataset(texts, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["train.jsonl"]
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text("utf-8").splitlines()]
    assert rows == [{"text": "one\nline"}, {"text": "zwei ü"}]


def test_paths_that_mislead_the_quantiser_are_refused(calibration: ModuleType, tmp_path: Path) -> None:
    texts = calibration.Calibration("texts", ["a"])
    with pytest.raises(ArtefactError, match="takes the data set for another one .* holds 'scienceqa'"):
        calibration.write_dataset(texts, tmp_path / "ScienceQA")
    assert list(tmp_path.iterdir()) == []
