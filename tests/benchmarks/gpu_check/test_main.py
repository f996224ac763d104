"""gpu_check: rehearsed as a whole on the processor, without any library, ended in time, and reported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_check import __main__, artefacts, report
from benchmarks.gpu_check.steps import PARTS, Options
from tests.project.pages import ROOT
from trimodal.errors import ServerError

SCRIPT = ROOT / "scripts" / "ci" / "gpu_check"


def outcomes(out):
    """Part → step → what was found."""
    parts = json.loads((out / "gpu_check.json").read_text())["parts"]
    return {name: one["steps"] for name, one in parts.items()}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_rehearsal_measures_and_writes_every_part(tmp_path):
    out = tmp_path / "out"
    command = [SCRIPT, "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "TRIMODAL_NO_VENV": "1", "PYTHON": sys.executable}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=850, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = outcomes(out)
    assert list(found) == list(PARTS)
    skipped = {f"{name} {step}" for name in found for step, one in found[name].items() if "skipped" in one}
    # What needs a GPU, or the compiler that only the machines with one have.
    assert skipped <= {
        "facts gpu", "vision tensorrt", "speech tensorrt", "llm vllm", "llm vllm_fp8",
    }  # fmt: skip
    assert found["vision"]["onnxruntime"]["relative_error"] == 0.0
    assert found["embedding"]["onnxruntime"]["lowest_cosine"] == pytest.approx(1.0, abs=1e-5)
    assert found["speech"]["ctranslate2"]["same_texts"] == 1.0
    written = (out / "gpu_check.txt").read_text()
    assert "A rehearsal on the processor" in written
    assert all(f"\n{name} " in written for name in PARTS)


def test_without_any_library_every_part_still_ends_well(tmp_path):
    """A bare interpreter: -S and -I leave the standard library and this package."""
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from benchmarks.gpu_check.steps import PARTS, Options, run_part
for name in PARTS:
    run_part(name, Path({str(tmp_path)!r}) / name, Options("cpu", 0.01, 1, {str(tmp_path)!r}))
"""
    command = [sys.executable, "-I", "-S", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    for name in PARTS:
        steps = json.loads((tmp_path / name).read_text())["steps"]
        why = {step: one.get("skipped", "") for step, one in steps.items()}
        assert why.pop("software", "measured") in ("", "measured")
        assert all("is not installed" in reason for reason in why.values()), why


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Puts parts of one's own in place of gpu_check's: name → the code of its module."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "runner.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "from benchmarks.gpu_check import steps\n"
        "real = steps.import_module\n"
        "steps.import_module = lambda name: real(name if '.steps' in name else name.rpartition('.')[2])\n"
        "steps.main()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
    monkeypatch.setattr(__main__, "MODULE", "runner")

    def put(**codes):
        monkeypatch.setattr(__main__, "PARTS", tuple(codes))
        for name, code in codes.items():
            begin = "import os, signal, subprocess, sys, time\n"
            begin += "from benchmarks.gpu_check.steps import Skipped, Step\n"
            (folder / f"{name}.py").write_text(begin + code)

    return put


GOOD = """
def good(options):
    return {"served": {"1x1": {"rate": 9.0, "p50": 1.0, "p95": 2.0, "p99": 3.0}}}
STEPS = (Step("one", good),)
"""


def test_a_step_that_fails_is_written_down_and_the_others_go_on(tmp_path, parts):
    parts(
        alpha="""
def refused(options):
    from trimodal.errors import OperatorError
    raise OperatorError("the server does not start")
def broken(options):
    raise ZeroDivisionError("a surprise")
def without(options):
    raise Skipped("no file of that name")
def good(options):
    return {"answer": 42.0}
STEPS = tuple(Step(one.__name__, one) for one in (refused, broken, without, good))
STEPS += (Step("needy", good, ("json", "another_library")), Step("gpu", good, gpu=True))
""",
        beta=GOOD,
    )
    out = tmp_path / "out"
    assert __main__.main(["--device", "cpu", "--out", str(out)]) == 1
    found = {name: one.get("error") or one.get("skipped") for name, one in outcomes(out)["alpha"].items()}
    assert found == {
        "refused": "the server does not start",
        "broken": "ZeroDivisionError: a surprise",
        "without": "no file of that name",
        "good": None,
        "needy": "another_library is not installed",
        "gpu": "it needs a GPU",
    }
    written = (out / "gpu_check.txt").read_text()
    assert "error: the server does not start" in written
    assert "answer: 42" in written
    assert "served 1x1: 9.0 items/s; ms: p50 1.00, p95 2.00, p99 3.00" in written


def test_what_an_interrupted_run_left_is_no_figure_of_this_one(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".vision.json").write_text('{"steps": {"onnxruntime": {"engine_1": 1.0}}}')
    monkeypatch.setattr(__main__, "MODULE", "benchmarks.gpu_check.none")
    assert __main__.main(["--device", "cpu", "--parts", "vision", "--out", str(out)]) == 1
    assert outcomes(out) == {"vision": {}}


@pytest.mark.slow
def test_a_part_that_hangs_or_crashes_ends_alone_and_keeps_what_it_had(tmp_path, parts):
    """With everything that it started, in whatever session."""
    hangs = f"""
def good(options):
    return {{"answer": 42}}
def hangs(options):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
    time.sleep(60)
STEPS = (Step("good", good), Step("hangs", hangs))
"""
    crashes = """
def crashes(options):
    os.kill(os.getpid(), signal.SIGSEGV)
STEPS = (Step("crashes", crashes),)
"""
    parts(alpha=hangs, beta=crashes, gamma=GOOD, delta="raise SystemExit(3)")
    out = tmp_path / "out"
    assert __main__.main(["--device", "cpu", "--out", str(out), "--limit-s", "4"]) == 1
    found = json.loads((out / "gpu_check.json").read_text())["parts"]
    assert found["alpha"]["error"] == "ended at its time limit of 4 s (--limit-s)"
    assert found["alpha"]["steps"]["good"]["answer"] == 42
    assert found["beta"]["error"] == "its process was ended by SIGSEGV"
    assert "error" not in found["gamma"]
    assert found["delta"] == {
        "steps": {}, "error": "its process ended with code 3", "seconds": found["delta"]["seconds"],
    }  # fmt: skip
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
    assert "did not end well" in (out / "gpu_check.txt").read_text()


def test_without_a_gpu_it_says_so_and_builds_nothing(tmp_path, monkeypatch, capsys):
    def no_driver():
        raise ServerError("no NVIDIA driver answers")

    for found, sentence in ((no_driver, "no NVIDIA driver answers"), (list, "hides every GPU")):
        monkeypatch.setattr(report, "visible_gpus", found)
        assert __main__.main(["--out", str(tmp_path / "out")]) == 1
        said = capsys.readouterr().err
        assert sentence in said
        assert "--device cpu rehearses" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.build
@pytest.mark.parametrize("name", ["vision", "embedding", pytest.param("speech", marks=pytest.mark.slow)])
def test_the_build_scripts_know_the_options_that_they_are_given(name):
    """A name or precision that a script does not know ends with exit code 2 before anything is built."""
    one = artefacts.artefacts(Options("cuda", 1.0, 1, "", "starter:whisper-base"))[name]
    command = [sys.executable, ROOT / "build" / f"{one.script}.py", *one.source, "--precision", one.precision]
    known = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=120)
    assert known.returncode == 0, known.stderr
    assert one.precision in known.stdout
