"""`trimodal bench cache` as a user calls it: accuracy on pairs, calibration, and what it refuses."""

import json

import pytest
from typer.testing import CliRunner

from trimodal.bench.cache.pairs import read_pairs
from trimodal.cli.app import app
from trimodal.errors import OperatorError

SAME = {
    "id": "s",
    "a": "How do I add a user?",
    "b": "What's the way to add a user?",
    "label": "same",
    "class": "paraphrase",
}
OTHER = {"id": "d", "a": "Add 3 users", "b": "Add 4 users", "label": "different", "class": "number"}


def run(*arguments):
    result = CliRunner().invoke(
        app, ["bench", "cache", *map(str, arguments)], env={"COLUMNS": "160", "TERM": "dumb"}
    )
    return result.exit_code, " ".join(result.output.replace("│", " ").split())


def pairs(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


@pytest.mark.slow
def test_the_tuning_part_is_counted_by_class(tmp_path):
    code, output = run("--part", "tune", "--accuracy-only", "--json", tmp_path / "f.json", "--show", 1)
    assert code == 0
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["false_hits"]["hits"] == 0
    assert figures["false_hits"]["bounds"][1] <= 0.01
    assert figures["false_hits_without_guard"]["hits"] > 300  # no threshold separates these
    assert figures["hits"]["rate"] > 0.3
    assert figures["with_guard"]["paraphrase"]["hits"] == figures["hits"]["hits"]
    assert "false hits: 0 of" in output
    assert "the goal of 1% is met" in output
    assert "missed t" in output


@pytest.mark.slow
def test_own_pairs_calibrate_and_are_then_used(tmp_path):
    file = pairs(tmp_path / "own.jsonl", *[SAME] * 3, "", *[OTHER] * 400)
    code, _ = run("--pairs", file, "--accuracy-only", "--calibrate", tmp_path / "c.json")
    assert code == 0
    assert json.loads((tmp_path / "c.json").read_text())["pairs"] == "own.jsonl"
    code, output = run("--pairs", file, "--accuracy-only", "--calibration", tmp_path / "c.json")
    assert (code, "hits: 3 of 3 paraphrases, 100.0%: the goal of 40% is met" in output) == (0, True)


def test_few_pairs_cannot_show_a_low_bound(tmp_path):
    file = pairs(tmp_path / "own.jsonl", SAME, OTHER)
    code, output = run("--pairs", file, "--accuracy-only", "--calibrate", tmp_path / "c.json")
    assert code == 1
    assert "no threshold keeps it; the least bound on own.jsonl (1 near-identical pairs) is 0.97" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--part", "test"], "known are report, tune"),
        (["--part", "tune", "--pairs", "x"], "--part and --pairs: one of them"),
        (["--part", "report", "--calibrate", "c.json"], "what is tuned on cannot be reported on"),
        (["--calibrate", "/nowhere/c.json"], "no file can be written there"),
        (["--calibrate", "c.json", "--calibration", "d.json"], "one of them"),
        (["--pairs", "/nowhere.jsonl"], "/nowhere.jsonl: no readable file of pairs"),
        (["--max-false-hit", "0"], "max-false-hit"),
    ],
)
def test_wrong_options_are_one_sentence(arguments, sentence):
    code, output = run("--accuracy-only", *arguments)
    assert code in (1, 2)
    assert sentence in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2: no JSON object"),
        ("[]", "line 2: the line"),
        ({**SAME, "class": "mood"}, "line 2: class"),
        ({**SAME, "a": ""}, "line 2: a: "),
        ({**SAME, "a": "x" * 5000}, "line 2: a: "),
        ({**SAME, "more": 1}, "line 2: more"),
        ({**SAME, "label": "different"}, "line 2: label"),
        ({**OTHER, "label": "same"}, "line 2: label"),
        ('{"a": "\\ud800"}', "line 2: "),
        ("[" * 100_000, "line 2: no JSON object"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, sentence):
    with pytest.raises(OperatorError, match=sentence):
        read_pairs(pairs(tmp_path / "own.jsonl", SAME, line))


def test_an_empty_file_has_no_pairs(tmp_path):
    with pytest.raises(OperatorError, match="there are no pairs in it"):
        read_pairs(pairs(tmp_path / "own.jsonl"))
