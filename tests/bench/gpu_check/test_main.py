"""gpu_check: rehearsed as a whole on the processor, with each library missing in turn, and ended in time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimodal.bench.gpu_check import __main__, part, report
from trimodal.bench.gpu_check.artefacts import Artefact, artefacts, provide
from trimodal.bench.gpu_check.report import markdown, rows
from trimodal.errors import ArtefactError, ServerError

ROOT = Path(__file__).parents[3]
MANIFEST = {
    "task": "vision", "runtime": "onnxruntime", "runtime_version": "1", "precision": "fp16",
    "source": "resnet50", "source_sha256": "none", "command": "python build/x.py",
}  # fmt: skip


def script(*given, site=None, limit=600):
    """Runs scripts/ci/gpu_check without an environment of its own; `site` is TRIMODAL_SITE."""
    environment = {**os.environ, "TRIMODAL_NO_VENV": "1", "PYTHON": sys.executable}
    environment |= {"TRIMODAL_SITE": str(site)} if site else {}
    command = [ROOT / "scripts" / "ci" / "gpu_check", *given]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)


def outcomes(out):
    """Part → step → what was found."""
    parts = json.loads((out / "gpu_check.json").read_text())["parts"]
    return {name: one["steps"] for name, one in parts.items()}


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_rehearsal_measures_and_writes_every_part(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    ended = script("--device", "cpu", "--out", str(out), limit=850)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = outcomes(out)
    assert list(found) == list(part.PARTS)
    skipped = {f"{name} {step}" for name in found for step, one in found[name].items() if "skipped" in one}
    # What needs a GPU, or the compiler that only the machines with one have.
    assert skipped <= {
        "facts gpu", "facts memory", "vision tensorrt", "vision alternating", "llm vllm", "llm vllm_fp8",
        "llm vllm_large_steps", "interference mps",
    }  # fmt: skip
    vision = dict(rows(found["vision"]["served"]))
    sides = {f"bare {kind}_{size}" for kind in ("engine", "pipeline", "torch") for size in (1, 4)}
    assert sides | {"served 4x1", "served 3x4"} <= set(vision)
    assert found["vision"]["onnxruntime"]["answers"] == {"relative_error": 0.0, "top1_agreement": 1.0}
    assert found["embedding"]["onnxruntime"]["answers"]["lowest_cosine"] == pytest.approx(1.0, abs=1e-5)
    for engine in ("ctranslate2", "torch"):
        assert found["speech"][engine]["answers"] == {"same_texts": 1.0}
    assert {"served_1", "bare_4"} <= set(found["embedding"]["served"])
    assert "direct 5s_2_served" in dict(rows(found["speech"]["served"]))
    assert found["llm"]["fake"]["abort"]["freed"] is True
    assert all(one["rate"] > 0 for name in found for _, one in rows(found[name]))
    text = (out / "gpu_check.md").read_text()
    assert "A rehearsal on the processor" in text
    assert all(f"## {name}" in text for name in part.PARTS)


BLOCKED = 'raise ImportError("taken away by the test")'


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """What one run builds serves the next."""
    return tmp_path_factory.mktemp("engines")


@pytest.mark.slow
@pytest.mark.parametrize(
    "library",
    [
        "torch", "numpy", "onnxruntime", "onnx", "onnxscript", "transformers", "tokenizers", "pydantic",
        "rich", "typer", "safetensors", "ctranslate2", "faster_whisper", "soundfile", "PIL", "tritonclient",
        "pynvml",
    ],
)  # fmt: skip
@pytest.mark.timeout(600)
def test_without_a_library_what_needs_it_is_skipped_and_the_rest_measured(
    tmp_path, engines, library, monkeypatch
):
    """Triton is taken away, too: its servers take most of a rehearsal's time."""
    site, out = tmp_path / "site", tmp_path / "out"
    site.mkdir()
    (site / f"{library}.py").write_text(BLOCKED)
    monkeypatch.setenv("TRIMODAL_TRITONSERVER", str(tmp_path / "nowhere"))
    ended = script("--device", "cpu", "--out", str(out), "--engines", str(engines), site=site)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = outcomes(out)
    assert list(found) == list(part.PARTS)
    steps = {f"{name} {step}": one for name in found for step, one in found[name].items()}
    assert not [name for name, one in steps.items() if "error" in one]
    assert "skipped" not in steps["facts software"]
    named = [one["skipped"] for one in steps.values() if library in one.get("skipped", "")]
    assert named or library in (
        "tritonclient",
        "faster_whisper",
        "pynvml",
        "PIL",
    )  # Triton or a GPU comes first


def test_without_any_library_every_part_still_ends_well(tmp_path):
    """A bare interpreter: -S and -I leave the standard library and this package."""
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from trimodal.bench.gpu_check.part import PARTS, run_part
from trimodal.bench.gpu_check.steps import Run
for name in PARTS:
    run_part(name, Path({str(tmp_path)!r}) / name, Run("cpu", 0.01, 1, Path({str(tmp_path)!r})))
"""
    command = [sys.executable, "-I", "-S", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    for name in part.PARTS:
        steps = json.loads((tmp_path / name).read_text())["steps"]
        why = {step: one.get("skipped", "") for step, one in steps.items()}
        assert why.pop("software", "measured") in ("", "measured")
        assert all("is not installed" in reason for reason in why.values()), why


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Puts parts of one's own in place of gpu_check's: name → the code of its module."""
    folder = tmp_path / "modules"
    folder.mkdir()
    runner = folder / "runner.py"
    runner.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "from trimodal.bench.gpu_check import part\n"
        "part.import_module = lambda name: __import__(name.rpartition('.')[2])\n"
        "part.main()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
    monkeypatch.setattr(__main__, "MODULE", "runner")

    def put(**codes):
        monkeypatch.setattr(__main__, "PARTS", tuple(codes))
        for name, code in codes.items():
            text = "import os, signal, subprocess, sys, time\n"
            text += "from trimodal.bench.gpu_check.steps import Run, Skipped, Step\n"
            (folder / f"{name}.py").write_text(text + code)

    return put


GOOD = """
def good(run):
    return {"served": {"1x1": {"rate": 9.0, "p50": 1.0, "p95": 2.0, "p99": 3.0}}}
STEPS = (Step("one", good),)
"""


def test_a_step_that_fails_is_written_down_and_the_others_go_on(tmp_path, parts):
    parts(
        alpha="""
def refused(run):
    from trimodal.errors import OperatorError
    raise OperatorError("the server does not start")
def broken(run):
    raise ZeroDivisionError("a surprise")
def without(run):
    raise Skipped("no file of that name")
def lacking(run):
    import a_library_that_is_not_there
def good(run):
    return {"answer": 42.0}
STEPS = tuple(Step(one.__name__, one) for one in (refused, broken, without, lacking, good))
STEPS += (Step("needy", good, ("json", "another_library")), Step("gpu", good, gpu=True))
""",
        beta=GOOD,
    )
    out = tmp_path / "out"
    assert __main__.main(["--device", "cpu", "--out", str(out)]) == 1
    found = outcomes(out)
    told = {name: one.get("error") or one.get("skipped") for name, one in found["alpha"].items()}
    assert told == {
        "refused": "the server does not start",
        "broken": "ZeroDivisionError: a surprise",
        "without": "no file of that name",
        "lacking": "a_library_that_is_not_there cannot be imported: "
        "No module named 'a_library_that_is_not_there'",
        "good": None,
        "needy": "another_library is not installed",
        "gpu": "it needs a GPU",
    }
    text = (out / "gpu_check.md").read_text()
    assert "**refused** error: the server does not start" in text
    assert "answer 42" in text
    assert "| served 1x1 | 9.0 | 1.00 | 2.00 | 3.00 |  |" in text


@pytest.mark.slow
def test_a_part_that_hangs_or_crashes_ends_alone_and_keeps_what_it_had(tmp_path, parts):
    """With everything that it started, in whatever session."""
    hangs = f"""
def good(run):
    return {{"answer": 42}}
def hangs(run):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
    time.sleep(60)
STEPS = (Step("good", good), Step("hangs", hangs))
"""
    crashes = """
def crashes(run):
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
    assert "did not end well" in (out / "gpu_check.md").read_text()


def test_without_a_gpu_it_says_so_and_builds_nothing(tmp_path, monkeypatch, capsys):
    def no_driver():
        raise ServerError("no NVIDIA driver answers")

    for found, sentence in ((no_driver, "no NVIDIA driver answers"), (list, "hides every GPU")):
        monkeypatch.setattr(report, "visible_gpus", found)
        assert __main__.main(["--out", str(tmp_path / "out")]) == 1
        told = " ".join(capsys.readouterr().err.split())
        assert sentence in told
        assert "--device cpu rehearses" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--seconds", "0"), "--seconds must be above 0"),
        (("--seconds", "inf"), "--seconds must be above 0"),
        (("--rounds", "-1"), "--rounds at least 1"),
        (("--limit-s", "nan"), "--limit-s must be above 0"),
        (("--parts", "facts,sight"), "--parts sight: known are facts, vision"),
        (("--parts", ","), "known are facts, vision"),
    ],
)
def test_arguments_that_measure_nothing_or_never_end(tmp_path, capsys, given, sentence):
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--device", "cpu", "--out", str(tmp_path / "out"), *given])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(__main__, "measure_part", lambda *_: pytest.fail("it measures"))
    out = tmp_path / "out"
    out.write_text("a file")
    assert __main__.main(["--device", "cpu", "--out", str(out)]) == 1
    assert "File exists" in capsys.readouterr().err


def artefact(code, **more):
    return Artefact("vision_classify", "onnx-fp16", ("-c", code), **more)


def test_an_artefact_is_built_once_where_the_build_scripts_put_it(tmp_path):
    code = f"""
import json, os, pathlib
made = pathlib.Path(os.environ["TRIMODAL_ENGINES"], "vision_classify/onnx-fp16")
made.mkdir(parents=True)
(made / "manifest.json").write_text({json.dumps(json.dumps(MANIFEST))})
"""
    for _ in range(2):  # the second finds it: mkdir would fail
        made = provide(artefact(code), tmp_path / "engines")
        assert made == tmp_path / "engines" / "vision_classify" / "onnx-fp16"


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (artefact("raise SystemExit(3)"), r"failed \(exit code 3\)"),
        (artefact("pass"), r"left no .*onnx-fp16"),  # ended well
        (artefact("pass", given=Path("/nowhere")), r"/nowhere is no built artefact"),
    ],
)
def test_a_build_that_fails_and_a_wrong_directory_are_told(tmp_path, one, sentence):
    with pytest.raises(ArtefactError, match=sentence):
        provide(one, tmp_path)


def test_artefacts_of_the_gpu_are_built_in_fp16_and_never_the_demo_s(tmp_path):
    known = artefacts("cuda", str(tmp_path), [f"vision={tmp_path}"])
    assert {name: one.name for name, one in known.items()} == {
        "vision": "onnx-fp16",
        "vision-plan": "tensorrt-fp16",
        "embedding": "onnx-fp16",
        "speech": "ctranslate2-float16",
        "speech-onnx": "onnx-fp16",
        "speech-torch": "torch-fp16",
    }
    assert not any(one.demo for one in known.values())
    assert known["vision"].given == tmp_path
    for text in ("vision", "sight=x"):
        with pytest.raises(ArtefactError, match="NAME=DIR is needed"):
            artefacts("cuda", "", [text])


def test_a_checkpoint_that_is_not_there_is_made_up_in_a_real_shape(monkeypatch):
    monkeypatch.setattr("trimodal.bench.gpu_check.artefacts.find_spec", lambda name: None)
    known = artefacts("cuda", "", [])
    assert known["speech"].random == "whisper-small"
    assert known["embedding"].random == "minilm"
    assert all("{checkpoint}" in known[name].command for name in ("speech", "speech-onnx", "embedding"))


@pytest.mark.build
@pytest.mark.parametrize(
    "name",
    [
        "vision",
        "embedding",
        pytest.param("speech", marks=pytest.mark.slow),
        pytest.param("speech-onnx", marks=pytest.mark.slow),
    ],
)
def test_the_build_scripts_know_the_options_that_they_are_given(name):
    """A name or precision that a script does not know ends with exit code 2 before anything is built."""
    script, *options = artefacts("cuda", str(ROOT / "build" / "demo" / "speech"), [])[name].command
    command = [sys.executable, ROOT / script, *options, "--help"]
    known = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert known.returncode == 0, known.stderr
    precision = options[options.index("--precision") + 1]
    assert precision in known.stdout


def test_the_report_names_the_machine_and_shows_ratios():
    about = {
        "date": "2026-11-12", "rehearsal": False, "gpu": "NVIDIA H200, 140 GiB, SM 9.0", "driver": "580",
        "processor": "EPYC", "cores": 8, "python": "3.12",
    }  # fmt: skip
    ratio = {"engine": 0.96, "torch": 1.2}
    figures = {"served": {"8x1": {"rate": 1.0, "p50": 1.0, "p95": 1.0, "p99": 1.0, "ratio": ratio}}}
    text = markdown(about, {"vision": {"steps": {"served": {**figures, "seconds": 4.2}}, "seconds": 5}})
    assert "- gpu: NVIDIA H200" in text
    assert "| served 8x1 | 1.0 | 1.00 | 1.00 | 1.00 | engine 0.960, torch 1.200 |" in text
    assert "rehearsal" not in text


def test_the_script_refuses_an_interpreter_that_does_not_fit():
    environment = {**os.environ, "PYTHON": "/bin/false"}
    for name in ("TRIMODAL_NO_VENV", "TRIMODAL_SITE"):
        environment.pop(name, None)
    command = [ROOT / "scripts" / "ci" / "gpu_check"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("gpu_check: Python 3.11 or 3.12 with venv is needed")


def test_folders_of_wheels_come_first_on_the_path(tmp_path):
    """And the interpreter that is named runs it, with no environment made."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    python.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(python), "TRIMODAL_SITE": "/a:/b"}
    command = [ROOT / "scripts" / "ci" / "gpu_check", "--parts", "facts"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout
    assert told == f"/a:/b:{ROOT} -m trimodal.bench.gpu_check.__main__ --parts facts\n"
