import io
import json

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from tests.vision.pictures import artefact
from trimodal.bench import vision
from trimodal.bench.closed_loop import LoopRound
from trimodal.bench.counters import StepTimes
from trimodal.bench.vision import Measured, Plan, report
from trimodal.bench.vision_sides import jpegs, open_bare, some, step_settings
from trimodal.errors import SettingsError
from trimodal.server.options import default_repository
from trimodal.vision import engine_fake


def plan(**changes):
    fields = {"concurrency": (1, 8), "batches": (16,), "rounds": 2, "seconds": 1.0, "bare": True}
    return Plan(**{**fields, "width": 224, "height": 224, **changes})


def test_cases_and_the_batches_that_they_could_become():
    assert plan().cases == [(1, 1), (8, 1), (3, 16)]
    assert plan().sizes == [1, 8, 16]


def test_pictures_are_different_jpegs_of_that_size_with_detail():
    files = jpegs(64, 48, count=3)
    assert len(set(files)) == 3
    for file in files:
        image = Image.open(io.BytesIO(file))
        assert (image.format, image.size) == ("JPEG", (64, 48))
        assert np.asarray(image).std() > 10
    assert some(files, 1, 2) == [files[2], files[0]]


def test_the_bare_side_reads_the_configs_and_the_changes(tmp_path):
    repository = default_repository()
    changes = {"vision_classify": {"intra_op_threads": "3", "artefact": "/x"}}
    assert step_settings(repository, changes)["vision_classify"].threads == 3
    with pytest.raises(SettingsError, match="vision_rank/configs/cpu.pbtxt.*'top_z'"):
        step_settings(repository, {"vision_rank": {"top_z": "1"}})


def test_bare_works_do_whole_batches(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(engine_fake, "FakeClassifier", spy(engine_fake.FakeClassifier, made))
    folder = str(artefact(tmp_path / "fake"))
    changes = {
        "vision_preprocess": {"classifier": folder},
        "vision_classify": {"artefact": folder, "engine": "fake"},
        "vision_rank": {"classifier": folder},
    }
    repository = default_repository()
    works = open_bare(repository, step_settings(repository, changes), jpegs(16, 16, count=3))
    for kind in ("engine", "pipeline"):
        for number in range(3):
            works[kind](2, number)
    works["pipeline"](5, 1)
    assert made[0].batch_sizes == [2] * 6 + [5]


def spy(cls, made):
    def make(*arguments, **more):
        made.append(cls(*arguments, **more))
        return made[-1]

    return make


def test_the_report_pairs_neighbours_with_the_best_bare_batch():
    measured = Measured(
        served={(1, 1): rounds((80, 0.013), (40, 0.026)), (8, 1): rounds((90, 0.08), (45, 0.16))},
        bare={
            ("engine", 1): rounds((90, 0.010), (45, 0.020)),
            ("engine", 8): rounds((100, 0.08), (50, 0.16)),
            ("pipeline", 1): rounds((85, 0.012), (43, 0.023)),
            ("pipeline", 8): rounds((80, 0.1), (40, 0.2)),
        },
        steps={case: dict.fromkeys(vision.STEPS, StepTimes(4.0, 0.5, 2.0)) for case in ((1, 1), (8, 1))},
    )
    out = io.StringIO()
    figures = report(plan(), measured, "test", Console(file=out, width=80))
    assert figures["best_bare_batch"] == {"engine": 8, "pipeline": 1}
    assert figures["best"]["case"] == "8x1"
    assert figures["best"]["engine"] == pytest.approx(0.9)
    assert figures["added_ms_engine"] == pytest.approx(4.5)  # between 3 and 6
    assert json.loads(json.dumps(figures))["served"]["8x1"]["steps"]["vision_rank"]["batch"] == 4.0
    assert "best served case 8x1: 0.900 of the bare engine at batch 8" in out.getvalue()
    assert "vision_classify: 0.50 ms queue, 2.00 ms in the model" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80


def rounds(*pairs):
    return [LoopRound(rate, (latency,) * 3) for rate, latency in pairs]
