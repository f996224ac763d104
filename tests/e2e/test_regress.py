"""`trimodal regress` against a real server with fake engines: record, compare, and a knob that harms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests.e2e.fakes import LLM
from trimodal.cli.app import app
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

FAKES = {"embedding": {"engine": "fake"}, "llm": LLM}
CASES = [
    {"id": "prompt", "task": "llm", "input": {"prompt": "hello there", "max_tokens": 120}},
    {
        "id": "chat",
        "task": "llm",
        "input": {"messages": [{"role": "user", "content": "naïve 😀"}], "max_tokens": 150, "tenant": "a"},
        "expect": {"contains": "quick"},
    },
    {"id": "refused", "task": "llm", "input": {"prompt": "x", "max_tokens": 100000}},
    {"id": "vector", "task": "embedding", "input": {"text": "é"}},
]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "golden.jsonl"
    path.write_text("\n".join(map(json.dumps, CASES)))
    return path


@pytest.fixture(scope="module")
def server(fakes: TritonServer) -> TritonServer:
    return fakes


def regress(golden: Path, url: str, *options: object) -> Result:
    """The command, in this process: its start takes longer than what it does here."""
    # Times depend on this machine: whatever they are, they are not judged here.
    command = ["regress", golden, "--against", url, "--repeat", 3, "--latency-tolerance", 100, *options]
    return CliRunner().invoke(app, [str(part) for part in command], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def baseline(golden: Path, server: TritonServer) -> Path:
    done = regress(golden, server.grpc_url, "--record")
    assert done.exit_code == 0, done.stderr + done.stdout
    return golden.with_name("golden.baseline.json")


def test_what_is_recorded(baseline: Path) -> None:
    run = json.loads(baseline.read_text())
    assert run["server"]["name"] == "triton"
    assert run["server"]["models"]["llm"]["parameters"]["engine"] == "fake"
    cases = run["cases"]
    assert [len(case["observations"]) for case in cases.values()] == [4] * 4
    answer = cases["prompt"]["observations"][0]["answer"]
    assert answer["finish_reason"] == "length"
    assert "quick brown" in answer["text"]
    refused = cases["refused"]["observations"][0]["answer"]
    assert refused["error"] == "INVALID_ARG"
    assert "max_tokens" in refused["text"]
    assert np.linalg.norm(cases["vector"]["observations"][0]["answer"]["vector"]) == pytest.approx(
        1, abs=1e-3
    )
    assert all(row["tokens"] == 120 and row["ttft"] > 0 for row in cases["prompt"]["observations"])


@pytest.mark.slow
def test_the_same_server_again(golden: Path, server: TritonServer, baseline: Path) -> None:
    done = regress(golden, server.grpc_url, "--json")
    assert done.exit_code == 0, done.stderr + done.stdout
    data = json.loads(done.stdout)
    assert (data["worse"], data["findings"], data["knobs"], data["compared"]) == (False, [], [], 4)
    assert {one["metric"] for one in data["latencies"] if not one["case"]} == {"ttft", "tpot", "total"}


@pytest.mark.slow
def test_a_knob_that_changes_the_answers(
    golden: Path, serve: Callable[..., TritonServer], baseline: Path
) -> None:
    changes = {**FAKES, "llm": {**FAKES["llm"], "fake_answer": "Something else is answer now. "}}
    other = serve(models=("llm", "embedding"), changes=changes)
    done = regress(golden, other.grpc_url, "--json")
    assert done.exit_code == 1, done.stderr + done.stdout
    data = json.loads(done.stdout)
    assert [knob.partition(" ")[0] for knob in data["knobs"]] == ["llm.fake_answer"]
    assert {(one["case"], one["what"], one["verdict"]) for one in data["findings"]} == {
        ("prompt", "answer", "worse"),
        ("chat", "expectation", "worse"),
        ("chat", "answer", "changed"),
    }
    shown = regress(golden, other.grpc_url)
    assert shown.exit_code == 1
    assert "llm.fake_answer" in shown.stdout
    assert "4 cases compared: 2 worse, 1 changed" in shown.stdout
