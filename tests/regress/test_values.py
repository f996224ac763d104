import json

import pytest

from tests.regress.runs import record, run
from trimodal.errors import OperatorError
from trimodal.regress.values import (
    RecordedAnswer,
    ServedModel,
    Server,
    read_baseline,
    write_baseline,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "golden.baseline.json"


def refusal(path):
    with pytest.raises(OperatorError) as caught:
        read_baseline(path)
    return str(caught.value)


def test_what_is_written_is_read(path):
    answer = RecordedAnswer(text="naïve 😀\u2028", labels=(("a", 0.5),), vector=(0.1, -1.0))
    server = Server(
        name="triton", version="2.51", models={"llm": ServedModel(version="1", parameters={"a": ""})}
    )
    whole = run(server, one=record("x", answer, REFUSED, ttft=(1.25, 2.5), cache=("", "exact")))
    write_baseline(path, whole)
    assert read_baseline(path) == whole
    assert json.loads(path.read_text())["recorded_at"] == whole.recorded_at


REFUSED = RecordedAnswer(text="full", error="UNAVAILABLE")


def test_no_baseline(path):
    assert refusal(path).endswith(
        "golden.baseline.json: record one with --record, or name it with --baseline"
    )


def test_damage(path):
    write_baseline(path, run(one=record("x")))
    whole = json.loads(path.read_text())
    empty = {**whole["cases"]["one"], "observations": []}
    endless = {**whole["cases"]["one"], "observations": [{"answer": {}, "total": float("inf")}]}
    before = {**whole["cases"]["one"], "observations": [{"answer": {}, "ttft": -1.0}]}
    for damaged, place in [
        ("{", "JSON"),
        ("[]", "JSON"),
        ("\xff", "JSON"),
        (json.dumps({**whole, "schema_version": 1}), "schema_version"),
        (json.dumps({key: whole[key] for key in whole if key != "recorded_at"}), "recorded_at"),
        (json.dumps({**whole, "cases": {"one": {}}}), "cases.one.task"),
        (json.dumps({**whole, "cases": {"one": empty}}), "cases.one.observations"),
        (json.dumps({**whole, "cases": {"one": endless}}), "cases.one.observations.0.total"),
        (json.dumps({**whole, "cases": {"one": before}}), "cases.one.observations.0.ttft"),
    ]:
        path.write_text(damaged, encoding="latin-1")
        assert refusal(path).endswith(f"is no baseline ({place}): record it again with --record")
