"""The one command of a GPU machine: rehearsed as a whole on the processor, and each way in which it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from trimodal.bench.gpu_check import __main__
from trimodal.bench.gpu_check.artefacts import Artefact, artefacts, provide
from trimodal.bench.gpu_check.report import markdown, rows
from trimodal.bench.vision.session_options import CHOICES
from trimodal.errors import ArtefactError, OperatorError, ServerError

ROOT = Path(__file__).parents[3]
MANIFEST = {
    "task": "vision", "runtime": "onnxruntime", "runtime_version": "1", "precision": "fp16",
    "source": "resnet50", "source_sha256": "none", "command": "python build/x.py",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.e2e
def test_a_rehearsal_measures_and_writes_everything(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))
    parts = ["vision", "vision-options", "embedding", "speech"]
    given = [word for part in parts for word in ("--part", part)]
    out = tmp_path / "out"
    assert __main__.main(["--device", "cpu", "--out", str(out), "--seconds", "0.05", *given]) == 0
    written = json.loads((out / "gpu_check.json").read_text())
    assert written["machine"]["rehearsal"] is True
    assert list(written["parts"]) == parts
    found = {part: dict(rows(written["parts"][part]["figures"])) for part in parts}
    # Served and bare, torch, and the classifier without decoding; 1 client to more, single items to batches.
    sides = {f"bare {kind}_{size}" for kind in ("engine", "pipeline", "torch") for size in (1, 4)}
    cases = {f"{side} {case}" for side in ("served", "pixels") for case in ("1x1", "4x1", "3x4")}
    assert set(found["vision"]) == sides | cases
    assert set(found["vision-options"]) == {f"{name}_1" for name in CHOICES}
    assert set(found["embedding"]) == {"served_1", "served_4", "bare_1", "bare_4"}
    assert {"direct 5s_2_served", "direct 5s_2_bare engine"} <= set(found["speech"])
    assert all(one["rate"] > 0 and one["p50"] > 0 for part in found.values() for one in part.values())
    answers = {part: written["parts"][part].get("answers") for part in parts}
    assert answers["vision"] == {"relative_error": 0.0, "top1_agreement": 1.0}
    assert answers["embedding"]["lowest_cosine"] == pytest.approx(1.0, abs=1e-5)
    assert answers["speech"] == {"same_texts": 1.0}
    text = (out / "gpu_check.md").read_text()
    assert "A rehearsal on the processor" in text
    assert all(f"| {case} |" in text for part in found.values() for case in part)


def test_a_part_that_fails_is_written_down_and_the_others_go_on(tmp_path, monkeypatch):
    made = tmp_path / "made"
    made.mkdir()
    (made / "manifest.json").write_text(json.dumps(MANIFEST))

    async def good(run):
        assert run.directory == made
        return {"served": {"1x1": {"rate": 9.0, "p50": 1.0, "p95": 2.0, "p99": 3.0}}}

    async def refused(run):
        raise OperatorError("the server does not start")

    async def broken(run):
        raise ZeroDivisionError("a surprise")

    monkeypatch.setattr(__main__, "ANSWERS", {})
    three = {name: (one, "vision") for name, one in (("a", refused), ("b", broken), ("c", good))}
    monkeypatch.setattr(__main__, "PARTS", three)
    out = tmp_path / "out"
    given = ["--device", "cpu", "--out", str(out), "--artefact", f"vision={made}"]
    assert __main__.main(given) == 1
    parts = json.loads((out / "gpu_check.json").read_text())["parts"]
    assert parts["a"]["error"] == "the server does not start"
    assert parts["b"]["error"] == "ZeroDivisionError: a surprise"
    assert "error" not in parts["c"]
    text = (out / "gpu_check.md").read_text()
    assert "the server does not start" in text
    assert "| served 1x1 | 9.0 | 1.00 | 2.00 | 3.00 |  |" in text


def test_without_a_gpu_it_says_so_and_builds_nothing(tmp_path, monkeypatch, capsys):
    def no_driver():
        raise ServerError("no NVIDIA driver answers")

    for found, sentence in ((no_driver, "no NVIDIA driver answers"), (list, "hides every GPU")):
        monkeypatch.setattr(__main__, "visible_gpus", found)
        assert __main__.main(["--out", str(tmp_path / "out")]) == 1
        told = " ".join(capsys.readouterr().out.split())
        assert sentence in told
        assert "--device cpu rehearses" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", [("--seconds", "0"), ("--seconds", "inf"), ("--rounds", "-1")])
def test_times_that_measure_nothing_or_never_end(tmp_path, capsys, given):
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--device", "cpu", "--out", str(tmp_path / "out"), *given])
    assert ended.value.code == 2
    assert "--seconds must be above 0" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(__main__, "measure_part", lambda *_: pytest.fail("it measures"))
    out = tmp_path / "out"
    out.write_text("a file")
    assert __main__.main(["--device", "cpu", "--out", str(out)]) == 1
    assert "File exists" in capsys.readouterr().out


def test_a_damaged_artefact_fails_its_part_alone_and_in_a_sentence(tmp_path, capsys):
    made = tmp_path / "made"
    made.mkdir()
    (made / "manifest.json").write_text(json.dumps(MANIFEST)[:40])
    out = tmp_path / "out"
    given = ["--device", "cpu", "--out", str(out), "--part", "vision", "--artefact", f"vision={made}"]
    assert __main__.main(given) == 1
    error = json.loads((out / "gpu_check.json").read_text())["parts"]["vision"]["error"]
    assert error == f"{made / 'manifest.json'} is damaged (JSON): build the engine again"
    assert "Traceback" not in capsys.readouterr().out


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
        made = provide(artefact(code), tmp_path / "engines", Console(file=sys.stderr))
        assert made == tmp_path / "engines" / "vision_classify" / "onnx-fp16"


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (artefact("raise SystemExit(3)"), r"failed \(exit code 3\)"),
        (artefact("pass"), r"failed \(exit code 0\)"),  # ended well and left nothing
        (artefact("pass", given=Path("/nowhere")), r"/nowhere is no built artefact"),
    ],
)
def test_a_build_that_fails_and_a_wrong_directory_are_told(tmp_path, one, sentence):
    with pytest.raises(ArtefactError, match=sentence):
        provide(one, tmp_path, Console(file=sys.stderr))


def test_artefacts_of_the_gpu_are_built_in_fp16_and_never_the_demo_s(tmp_path):
    known = artefacts("cuda", tmp_path / "whisper", [f"vision={tmp_path}"])
    assert {name: one.name for name, one in known.items()} == {
        "vision": "onnx-fp16",
        "embedding": "onnx-fp16",
        "speech": "ctranslate2-float16",
        "speech-onnx": "onnx-fp16",
    }
    assert not any(one.demo for one in known.values())
    assert known["vision"].given == tmp_path
    for text in ("vision", "sight=x"):
        with pytest.raises(ArtefactError, match="NAME=DIR is needed"):
            artefacts("cuda", tmp_path, [text])


@pytest.mark.build
@pytest.mark.parametrize("name", ["vision", "embedding", "speech", "speech-onnx"])
def test_the_build_scripts_know_the_options_that_they_are_given(name):
    """A name or precision that a script does not know ends with exit code 2 before anything is built."""
    script, *options = artefacts("cuda", ROOT / "build" / "demo" / "speech", [])[name].command
    command = [sys.executable, ROOT / script, *options, "--help"]
    known = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert known.returncode == 0, known.stderr
    precision = options[options.index("--precision") + 1]
    assert precision in known.stdout


def test_the_report_names_the_machine_and_escapes_nothing_away():
    about = {
        "date": "2026-11-21", "rehearsal": False, "gpu": "NVIDIA H200, 141 GiB, SM 9.0", "driver": "580.1",
        "processor": "x", "cores": 16, "python": "3.12", "packages": {"onnxruntime-gpu": "1.31.1"},
    }  # fmt: skip
    ratio = {"engine": 0.91, "torch": 1.2}
    summary = {"rate": 5120.0, "p50": 1.0, "p95": 2.0, "p99": 3.0, "ratio": ratio}
    part = {"artefact": MANIFEST, "figures": {"served": {"64x1": summary}, "plan": {}}, "seconds": 60.0}
    text = markdown(about, {"vision": part})
    assert "NVIDIA H200, 141 GiB, SM 9.0" in text
    assert "onnxruntime-gpu 1.31.1" in text
    assert "rehearsal" not in text
    assert "| served 64x1 | 5120.0 | 1.00 | 2.00 | 3.00 | engine 0.910, torch 1.200 |" in text


def test_the_script_refuses_an_interpreter_that_does_not_fit():
    environment = {**os.environ, "PYTHON": "/bin/false"}
    command = [ROOT / "scripts" / "gpu_check"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("gpu_check: Python 3.11 or 3.12 with venv is needed")
