"""`trimodal bench …` as a user calls it: refusals at once, and each bench once with its fake engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result as Ended
from typer.testing import CliRunner

from tests.bench.recordings import write_recordings
from tests.vision.pictures import artefact
from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.records import OK, TIMEOUT, Record
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.slo import parse_slo
from trimodal.bench.load.statistics import summarise
from trimodal.bench.report import IMAGES
from trimodal.bench.samples import Recording
from trimodal.bench.scenarios import llm as llm_scenario
from trimodal.bench.scenarios.llm import LlmScenario
from trimodal.bench.scenarios.server import LoadTest, Measurement
from trimodal.bench.targets.taking import check
from trimodal.cli.app import app
from trimodal.cli.bench.options import run_load
from trimodal.errors import SettingsError
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer
from trimodal.speech.engines.fake import speak

COMMANDS = ["llm", "vision", "speech", "embedding"]
FAKE_LLM = ("--set", "engine=fake", "--set", "fake_prefill_us=0")


def run(*arguments: object) -> Ended:
    environment = {"COLUMNS": "120", "TERM": "dumb"}
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], env=environment)


def said(result: Ended) -> str:
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("llm --rate 0", "--rate 0: above 0"),
        ("llm --rate 2 --streams 8", "--rate is of an open loop, --streams of closed ones: leave one out"),
        ("speech --rate 2 --streams 1", "--rate is of an open loop, --streams of closed ones"),
        ("vision --rate 2 --concurrency 8", "--rate is of an open loop, --concurrency of closed ones"),
        ("embedding --max-in-flight 9", "--max-in-flight is of an open loop: it goes with --rate"),
        ("llm --seconds 3 --requests 3", "one of them"),
        ("llm --rate 1000 --seconds 1000", "--rate 1000 for 1002 s: 1000000 requests at most"),
        ("llm --requests 1000000 --warmup 1", "--requests and --warmup: 1000000 requests at most"),
        ("llm --streams 5000", "a closed loop of 5000 clients: 1 to 4096"),
        ("llm --prompt-tokens 4", "lognormal:400,0.6 is needed, from 8 to"),
        ("llm --prompts /nowhere.txt", "--prompts /nowhere.txt: cannot be read"),
        ("llm --prompts /dev/zero", "--prompts /dev/zero: cannot be read: it has more than 67,108,864 bytes"),
        ("llm --prompts /dev/null", "--prompts /dev/null: no line with text"),
        ("llm --prompts /dev/null --prompt-tokens 64", "leave --prompt-tokens out"),
        ("llm --json /nowhere/r.json", "--json /nowhere/r.json: no file can be"),
        ("llm --url 127.0.0.1:1", "no server at 127.0.0.1:1"),
        (
            "llm --api-key-file /dev/null",
            "--api-key-file is of HTTP: it goes with --url http://",
        ),
        ("llm --url a:1 --api-key-file /dev/null", "--api-key-file is of HTTP: it goes with --url http://"),
        ("llm --warmup inf", "Invalid value for '--warmup'"),
        ("llm --strict", "--strict is of objectives: it goes with --slo"),
        ("vision --image-size big", "--image-size big: 224 or 640x480 is needed"),
        ("vision --image-size 8x8", "16 to 4096 pixels a side"),
        ("vision --set top_z=1", "unknown parameter 'top_z'"),
        ("vision --profile tpu", "tpu is not a profile: cpu, cuda or tensorrt"),
        ("vision --url http://127.0.0.1:1", "this bench goes over gRPC: host:port is needed"),
        ("vision --profile cuda --url 127.0.0.1:1", "--profile is of a server that is started: leave it or"),
        ("speech --policy best", "--policy best: known are edge, vad, file"),
        ("speech --set engine=fake", "write it as model.parameter=value"),
        ("speech --samples /nowhere", "--samples /nowhere/samples.json: FileNotFoundError"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(command: str, sentence: str) -> None:
    result = run(*command.split())
    assert result.exit_code in (1, 2), result.output
    assert sentence in said(result)
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("outcomes", "slo", "strict", "why"),
    [
        ([OK, OK], "ms<=9000,error_rate<=0", True, ""),
        ([OK, OK], "ms<=1", False, ""),
        ([OK, OK], "p99_ms<=9000,mean_ms<=1", True, "--slo was missed: 1 client: mean_ms<=1"),
        ([OK, "refused"], "error_rate<=0.4", True, "--slo was missed: 1 client: error_rate<=0.4"),
        ([OK, "refused"], "", False, ""),
        (["refused", "refused"], "", False, "1 client, served: no request was answered"),
        ([], "", False, "1 client, served: no request was answered"),
    ],
)  # fmt: skip
def test_what_was_not_answered_or_to_be_kept_is_exit_code_1(
    outcomes: list[str], slo: str, strict: bool, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bench that nobody answered ended with exit code 0. What a server beside it keeps is not asked."""
    objectives, case = parse_slo(slo), LoadPlan().cases[0]

    async def measure(*_: object) -> Measurement:
        served, slow = (
            LoadRun(tuple(Record(n, 0, 0, [], took, one) for n, one in enumerate(told)), 0.0, 10.0)
            for told, took in ((outcomes, 0.5), ([OK], 9.5))
        )
        sides = {"served": served, "beside": slow}
        found = [Result(case, side, [run], summarise(run, objectives)) for side, run in sides.items()]
        return Measurement("Images", IMAGES, found, [])

    if why:
        with pytest.raises(typer.Exit) as ended:
            run_load(measure, objectives, None, strict=strict)
        assert ended.value.exit_code == 1
    else:
        run_load(measure, objectives, None, strict=strict)
    assert capsys.readouterr().err == (f"bench: {why}\n" if why else "")


def test_a_first_request_that_takes_too_long_names_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    async def measure(*_: object) -> Measurement:
        async def silent(number: int) -> Record:
            return Record(number, 0, 0, [], 0.1, TIMEOUT, "the server at a:1 was silent for 0.1 s")

        await check(silent)
        raise AssertionError

    with pytest.raises(typer.Exit):
        run_load(measure, parse_slo(""), None)
    told = "the server at a:1 was silent for 0.1 s: --timeout sets how long a request may take"
    assert capsys.readouterr().err == f"bench: {told}\n"


@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_ends_a_bench_before_its_load_and_shows_what_was_measured_of_it(
    begun: bool, tmp_path: Path
) -> None:
    """While a server started, or a first request waited, nothing took it."""
    script = f"""
import asyncio, os, signal, typer
from trimodal.bench.load.slo import NO_SLO
from trimodal.bench.report import IMAGES
from trimodal.bench.scenarios.server import Measurement
from trimodal.cli.bench.options import run_load

async def measure(stop, tell):
    if {begun}:
        tell("1 client, served, round 1 of 1")
    os.kill(os.getpid(), signal.SIGINT)
    await (stop.wait() if {begun} else asyncio.sleep(60))
    return Measurement("Images", IMAGES, [], [])

try:
    run_load(measure, NO_SLO, None)
except typer.Exit as end:
    os._exit(end.exit_code)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert done.returncode == (0 if begun else 130), done.stderr
    if begun:
        assert "interrupted: what was measured so far is shown" in done.stdout
    else:
        assert "bench: interrupted before anything was measured" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_a_typical_command_that_its_options_allow(name: str) -> None:
    shown = " ".join(run(name, "--help").output.split())
    typical = re.search(rf"Typical: trimodal bench {name}((?: [a-z-][\w.,-]*| \d+)*)", shown)
    assert typical
    for option in re.findall(r"--[a-z-]+", typical[1]):
        assert shown.count(option) >= 2, f"{option} is no option of it"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a load test that ends well; gives its JSON."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))

    def measure(*arguments: object) -> dict[str, Any]:
        target = tmp_path / "out.json"
        result = run(*arguments, "--json", target)
        assert result.exit_code == 0, result.output
        return dict(json.loads(target.read_text()))

    return measure


@pytest.mark.slow
@pytest.mark.e2e
def test_the_fake_engines_delays_are_measured_beside_it(report: Any) -> None:
    """A step of 50 ms for each token: no answer can be shorter, on either side."""
    load = ("--streams", "1", "--requests", "6", "--warmup", "2", "--rounds", "1")
    asked = ("--bare", "--max-tokens", "8", "--slo", "tpot_ms<=1,error_rate<=0")
    found = report("llm", *FAKE_LLM, "--set", "fake_step_ms=50", *load, *asked)
    assert [case["side"] for case in found["cases"]] == ["served", "bare"]
    for case in found["cases"]:
        assert (case["requests"], case["ok"], case["outcomes"]) == (6, 6, {"ok": 6})
        assert case["metrics"]["latency_ms"]["least"] >= 7 * 50 - 5
        assert case["goodput"] == 0
        assert [verdict["met"] for verdict in case["verdicts"]] == [False, True]


@pytest.mark.slow
@pytest.mark.e2e
def test_another_server_takes_turns_and_answers_as_long(report: Any) -> None:
    changes = {"llm": {"engine": "fake", "fake_step_ms": "20", "fake_prefill_us": "0"}}
    with TritonServer(ServerOptions.on_free_ports("llm", changes=changes)) as other:
        load = ("--streams", "2", "--requests", "6", "--rounds", "2", "--max-tokens", "uniform:4-9")
        found = report(
            "llm", *FAKE_LLM, "--set", "fake_step_ms=5", *load, "--beside", f"http://{other.http_url}"
        )
    served, beside = found["cases"]
    assert (served["side"], beside["side"]) == ("served", other.http_url)
    assert served["ok"] == beside["ok"] == 12
    assert beside["output_tokens_per_s"] < served["output_tokens_per_s"]


@pytest.mark.slow
@pytest.mark.e2e
def test_images_beside_the_bare_engine(report: Any, tmp_path: Path) -> None:
    fake = ("--set", f"artefact={artefact(tmp_path / 'fake')}", "--set", "engine=fake")
    load = ("--concurrency", "1", "--concurrency", "3", "--batch", "4", "--seconds", "0.3", "--rounds", "1")
    found = report("vision", *fake, *load, "--image-size", "64x48", "--bare")
    names = [(case["case"], case["side"]) for case in found["cases"]]
    assert names == [(case, side) for case in ("1 client", "3 clients") for side in ("served", "bare")]
    assert all(case["items_per_s"] > 0 for case in found["cases"])


@pytest.mark.slow
@pytest.mark.e2e
def test_live_streams_on_the_fake_recogniser(report: Any, tmp_path: Path) -> None:
    """The fake hears what was said without an error: any that is counted is the bench's or the sessions'."""
    sentences = ["what is a list", "explain the while statement", "one two three four"]
    utterances = []
    for sentence in sentences:
        samples, _ = speak(sentence.split())
        utterances.append(Recording(samples, sentence))
    fake = ("--set", "speech_recognize.engine=fake", "--set", "speech.vad=energy", "--policy", "vad")
    load = ("--streams", "1", "--streams", "3", "--stream-seconds", "2", "--requests", "3")
    found = report("speech", "--samples", write_recordings(tmp_path, utterances), *fake, *load)
    assert [case["case"] for case in found["cases"]] == ["1 client", "3 clients"]
    for case in found["cases"]:
        assert (case["ok"], case["word_error_rate"]) == (3, 0)
        assert case["metrics"]["lag_ms"]["least"] > 0, "no word is told before it ends"


@pytest.mark.parametrize(
    ("options", "lines"),
    [("", 500), ("--prompt-tokens 64", 0), ("--prompts {file}", 2)],
)
def test_the_language_model_is_asked_questions_unless_lengths_are_given(
    options: str, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def measured(test: LoadTest, scenario: LlmScenario) -> None:
        asked.append(scenario.mix)
        raise SettingsError("enough")

    monkeypatch.setattr(llm_scenario, "run_llm", measured)
    file = tmp_path / "mine.txt"
    file.write_text("one\ntwo\n")
    run("llm", *options.format(file=file).split())
    (mix,) = asked
    assert (len(mix.lines), mix.prompt.text) == (lines, "64")
