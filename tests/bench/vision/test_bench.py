import io
import json
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from tests.vision.pictures import artefact
from trimodal.bench.common.closed_loop import LoopRound, some
from trimodal.bench.common.serving import StepTimes, bench_options
from trimodal.bench.vision import bench
from trimodal.bench.vision.sides import jpegs, larger_batches, open_bare, sizes_up_to, step_settings
from trimodal.bench.vision.tables import Measured, Plan, report
from trimodal.errors import SettingsError
from trimodal.repository import select_models
from trimodal.vision.engines import fake


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


@contextmanager
def settings_of(changes, profile="cpu", edit=None):
    """The repository that a bench makes, its models, and their settings."""
    with bench_options(("vision",), profile, changes, edit) as options:
        models = select_models(options.repository, options.models, profile)
        yield options.repository, models, step_settings(models)


def test_the_bare_side_reads_the_configs_and_the_changes():
    changes = {"vision_classify": {"intra_op_threads": "3", "artefact": "/x"}}
    with settings_of(changes) as (_, models, settings):
        assert settings["vision_classify"].threads == 3
        assert models["vision_classify"].parameters["artefact"] == "/x"
    refused = pytest.raises(SettingsError, match="vision_rank/configs/cpu.pbtxt.*'top_z'")
    with refused, settings_of({"vision_rank": {"top_z": "1"}}):
        pass


def test_each_profile_gives_its_own_settings():
    with settings_of({}, "cuda") as (_, models, settings):
        assert (settings["vision_classify"].device, models["vision_classify"].artefact) == (
            "cuda",
            "onnx-fp16",
        )
    with settings_of({}, "tensorrt") as (_, _, settings):  # the plan is run by Triton itself
        assert set(settings) == {"vision_preprocess", "vision_rank"}


def test_larger_batches_are_taken_by_every_step():
    assert sizes_up_to(1) == [1]
    assert sizes_up_to(24) == [1, 2, 4, 8, 16, 24]
    with settings_of({}, "cuda", partial(larger_batches, 64)) as (_, models, settings):
        assert {model.config.max_batch_size for model in models.values()} == {64}
        assert settings["vision_classify"].warm_up_batch_sizes == (1, 2, 4, 8, 16, 32, 64)
        batching = models["vision_classify"].config.dynamic_batching
        assert list(batching.preferred_batch_size) == [2, 4, 8, 16, 32, 64]


def test_bare_works_do_whole_batches(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(fake, "FakeClassifier", spy(fake.FakeClassifier, made))
    folder = str(artefact(tmp_path / "fake"))
    changes = {
        "vision_preprocess": {"classifier": folder},
        "vision_classify": {"artefact": folder, "engine": "fake"},
        "vision_rank": {"classifier": folder},
    }
    with settings_of(changes) as (repository, _, settings):
        works = open_bare(repository, settings, jpegs(16, 16, count=3))
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
        pixels={(8, 1): rounds((95, 0.07), (48, 0.15))},
        steps={case: dict.fromkeys(bench.STEPS, StepTimes(4.0, 0.5, 2.0)) for case in ((1, 1), (8, 1))},
    )
    measured.bare["torch", 1] = rounds((160, 0.005), (80, 0.010))
    out = io.StringIO()
    figures = report(plan(), measured, "test", Console(file=out, width=80))
    assert figures["best_bare_batch"] == {"engine": 8, "pipeline": 1, "torch": 1}
    assert figures["best"]["torch"] == pytest.approx(0.5625)  # 90/160 and 45/80
    assert figures["pixels"]["8x1"]["ratio"]["engine"] == pytest.approx(0.955)  # between 0.95 and 0.96
    assert figures["best"]["case"] == "8x1"
    assert figures["best"]["engine"] == pytest.approx(0.9)
    assert figures["added_ms_engine"] == pytest.approx(4.5)  # between 3 and 6
    assert json.loads(json.dumps(figures))["served"]["8x1"]["steps"]["vision_rank"]["batch"] == 4.0
    assert "best served case 8x1: 0.900 of the bare engine at batch 8" in out.getvalue()
    assert "vision_classify: 0.50 ms queue, 2.00 ms in the model" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80


def rounds(*pairs):
    return [LoopRound(rate, (latency,) * 3) for rate, latency in pairs]
