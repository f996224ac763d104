import json

import pytest
from typer.testing import CliRunner

from trimodal.cli import common
from trimodal.cli.app import app
from trimodal.client import Client, FakeTransport
from trimodal.client.transports.fake import scripted
from trimodal.regress.values import Server

LINES = [
    {"id": "one", "task": "llm", "input": {"prompt": "hi"}},
    {"id": "two", "task": "llm", "input": {"prompt": "there"}, "expect": {"contains": "one"}},
]


@pytest.fixture
def fake(monkeypatch):
    transport = FakeTransport(llm=scripted("one two"))

    async def identify(url, models, timeout):
        return Server(name="triton", version="2.51")

    monkeypatch.setattr(common, "connect", lambda url, silence: Client(transport=transport))
    monkeypatch.setattr("trimodal.regress.identity.identify", identify)
    monkeypatch.setenv("COLUMNS", "200")
    return transport


@pytest.fixture
def golden(tmp_path):
    path = tmp_path / "golden.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)))
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["regress", *map(str, arguments)])


def test_record_and_compare(fake, golden):
    recorded = run(golden, "--record", "--repeat", 4)
    assert recorded.exit_code == 0, recorded.output
    baseline = golden.with_name("golden.baseline.json")
    assert recorded.stdout == f"recorded 2 cases in {baseline}\n"
    assert len(fake.requests) == 10
    # A time is never "worse" here: only what is answer is judged.
    again = run(golden, "--repeat", 4, "--latency-tolerance", 100)
    assert again.exit_code == 0, again.output
    assert "2 cases compared: " in again.stdout
    assert "worse" not in again.stdout


def test_a_worse_answer(fake, golden):
    run(golden, "--record", "--repeat", 1)
    fake.functions["llm"] = scripted("other words")
    worse = run(golden, "--repeat", 1)
    assert worse.exit_code == 1
    assert "does not contain 'one'" in worse.stdout
    assert "2 cases compared: 2 worse, 1 changed" in worse.stdout
    alike = run(golden, "--repeat", 1, "--min-overlap", 0)
    assert alike.exit_code == 1  # the expectation is still broken
    fake.functions["llm"] = scripted("one other")
    assert run(golden, "--repeat", 1).exit_code == 1
    assert run(golden, "--repeat", 1, "--min-overlap", 0.5).exit_code == 0


def test_json(fake, golden, tmp_path):
    path = tmp_path / "kept.json"
    recorded = run(golden, "--record", "--repeat", 1, "--baseline", path, "--json")
    assert json.loads(recorded.stdout) == {"baseline": str(path), "broken": []}
    fake.functions["llm"] = scripted("two")
    compared = run(golden, "--repeat", 1, "--baseline", path, "--json")
    assert compared.exit_code == 1
    data = json.loads(compared.stdout)
    assert data["worse"] is True
    assert {one["case"] for one in data["findings"]} == {"one", "two"}


def test_recording_a_broken_expectation_is_told(fake, golden, tmp_path):
    fake.functions["llm"] = scripted("two")
    recorded = run(golden, "--record", "--repeat", 1)
    assert recorded.exit_code == 1
    assert "does not contain 'one'" in recorded.stdout
    assert (tmp_path / "golden.baseline.json").is_file()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda fake, golden: None,
            "no baseline {folder}/golden.baseline.json: record one with --record, or name it",
        ),
        (
            lambda fake, golden: golden.unlink(),
            "{folder}/golden.jsonl cannot be read: no such file or directory",
        ),
        (
            lambda fake, golden: golden.write_text("\n{}"),
            "{folder}/golden.jsonl, line 2: Unable to extract tag using discriminator 'task'",
        ),
    ],
)
def test_it_cannot_run(fake, golden, change, sentence):
    change(fake, golden)
    result = run(golden)
    assert result.exit_code == 2
    assert result.stderr.startswith("trimodal: " + sentence.format(folder=golden.parent))
    assert result.stderr.count("\n") == 1
    assert fake.requests == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("golden.jsonl", "golden.jsonl: it is the golden set itself"),
        (".", "no file can be written there"),
        ("gone/baseline.json", "baseline.json: no file can be written there"),
    ],
)
def test_where_no_baseline_can_be_written_is_told_before_anything_is_asked(fake, golden, name, sentence):
    before = golden.read_bytes()
    result = run(golden, "--record", "--baseline", str(golden.parent / name))
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.replace("│", " ").split())
    assert fake.requests == []
    assert golden.read_bytes() == before


def test_no_server_and_no_model(fake, golden):
    fake.reachable = False
    result = run(golden, "--record")
    assert (result.exit_code, result.stderr) == (
        2,
        "trimodal: no server at nowhere: start one with `trimodal serve`\n",
    )
    fake.reachable = True
    del fake.functions["llm"]
    result = run(golden, "--record")
    assert result.exit_code == 2
    assert result.stderr == "trimodal: the server has no model 'llm' ready, which line 1 (one) needs\n"
    assert not golden.with_name("golden.baseline.json").exists()


def test_two_servers_beside_each_other(fake, golden, monkeypatch):
    other = FakeTransport(llm=scripted("one three"))
    sides = {"new:1": fake, "old:1": other}
    monkeypatch.setattr(common, "connect", lambda url, silence: Client(transport=sides[url]))
    done = run(golden, "--against", "new:1", "--versus", "old:1", "--repeat", 2, "--latency-tolerance", 100)
    assert done.exit_code == 1
    assert done.stdout.startswith("old:1: 2 cases; now 2 cases\n")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("one")]
    assert " ".join(line.split()) == "one worse answer one three one two overlap 0.50; 3 of 3 requests"
    assert "2 cases compared: 1 worse, 1 changed" in done.stdout
    assert not golden.with_name("golden.baseline.json").exists()
    for more in (["--record"], ["--baseline", "x.json"]):
        refused = run(golden, "--versus", "old:1", *more)
        assert refused.exit_code == 2
        assert "--versus needs no baseline" in refused.stderr
