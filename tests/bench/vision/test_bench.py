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
from trimodal.bench.vision.sides import (
    classifier_directory,
    jpegs,
    larger_batches,
    open_bare,
    sizes_up_to,
    vision_settings,
)
from trimodal.bench.vision.tables import Measured, Plan, report
from trimodal.errors import OperatorError, SettingsError
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
def models_of(changes, profile="cpu", edit=None):
    """The models of the repository that a bench makes."""
    with bench_options(("vision",), profile, changes, edit) as options:
        yield select_models(options.repository, options.models, profile)


def test_the_bare_side_reads_the_configs_and_the_changes(tmp_path):
    changes = {"vision": {"intra_op_threads": "3", "artefact": str(tmp_path)}}
    with models_of(changes) as models:
        assert vision_settings(models).threads == 3
        assert classifier_directory(models) == tmp_path
    refused = pytest.raises(SettingsError, match="vision/configs/cpu.pbtxt.*'top_z'")
    with refused, models_of({"vision": {"top_z": "1"}}) as models:
        vision_settings(models)


def test_each_profile_gives_its_own_settings():
    with models_of({}, "cuda") as models:
        assert vision_settings(models).device == "cuda"
        assert classifier_directory(models).parts[-3:] == ("vision_classify", "1", "onnx-fp16")
    with models_of({}, "tensorrt") as models:  # the plan is run by Triton itself
        assert vision_settings(models) is None
        assert classifier_directory(models).parts[-3:] == ("vision_classify", "1", "tensorrt-fp16")


def test_larger_batches_are_taken_by_every_step():
    assert sizes_up_to(1) == [1]
    assert sizes_up_to(24) == [1, 2, 4, 8, 16, 24]
    with models_of({}, "tensorrt", partial(larger_batches, 64)) as models:
        assert {model.config.max_batch_size for model in models.values()} == {64}
        assert len(models) == 4
    with models_of({}, "cuda", partial(larger_batches, 64)) as models:
        assert {model.config.max_batch_size for model in models.values()} == {64}
        assert vision_settings(models).warm_up_batch_sizes == (1, 2, 4, 8, 16, 32, 64)
        batching = models["vision"].config.dynamic_batching
        assert list(batching.preferred_batch_size) == [2, 4, 8, 16, 32, 64]


def test_bare_works_do_whole_batches(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(fake, "FakeClassifier", spy(fake.FakeClassifier, made))
    folder = str(artefact(tmp_path / "fake"))
    changes = {"vision": {"artefact": folder, "engine": "fake", "warm_up_batch_sizes": "3"}}
    with models_of(changes) as models:
        works = open_bare(models["vision"].version_directory, vision_settings(models), jpegs(16, 16, count=3))
        for kind in ("engine", "pipeline"):
            for number in range(3):
                works[kind](2, number)
        works["pipeline"](5, 1)
    assert made[0].batch_sizes == [3] + [2] * 6 + [5]


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
        steps={case: {"vision": StepTimes(4.0, 0.5, 2.0)} for case in ((1, 1), (8, 1))},
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
    assert json.loads(json.dumps(figures))["served"]["8x1"]["steps"]["vision"]["batch"] == 4.0
    assert "best served case 8x1: 0.900 of the bare engine at batch 8" in out.getvalue()
    assert "vision: 0.50 ms queue, 2.00 ms in the model" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_the_report_of_a_pipeline_has_the_batches_of_its_classifier():
    names = ("vision_preprocess", "vision_classify", "vision_rank")
    steps = {name: StepTimes(float(number), 0.5, 2.0) for number, name in enumerate(names, 6)}
    measured = Measured(served={(1, 1): rounds((80, 0.01))}, steps={(1, 1): steps})
    out = io.StringIO()
    report(plan(bare=False, profile="tensorrt"), measured, "test", Console(file=out, width=80))
    (row,) = [line for line in out.getvalue().splitlines() if "1 x 1" in line]
    assert row.split()[-1] == "7.0"
    assert all(f"{name}: 0.50 ms queue, 2.00 ms in the model" in out.getvalue() for name in names)


def test_the_report_has_the_peer_beside_the_same_clients():
    measured = Measured(
        served={(1, 1): rounds((80, 0.01), (40, 0.02)), (3, 16): rounds((120, 0.4), (60, 0.8))},
        bare={("engine", 1): rounds((100, 0.008), (50, 0.016))},
        peer={(1, 1): rounds((20, 0.04), (10, 0.08))},
        steps={case: {"vision": StepTimes(1.0, 0.5, 2.0)} for case in ((1, 1), (3, 16))},
    )
    out = io.StringIO()
    figures = report(plan(peer="fastapi"), measured, "test", Console(file=out, width=80))
    assert figures["served"]["1x1"]["ratio"] == {"engine": pytest.approx(0.8), "peer": pytest.approx(4)}
    assert figures["served"]["3x16"]["ratio"] == {"engine": pytest.approx(1.2)}, "it takes single images"
    assert figures["peer"]["1x1"]["rate"] == pytest.approx(15)
    assert figures["peer"]["1x1"]["served_p50_over"] == pytest.approx(0.25)
    assert "/peer" in out.getvalue()
    assert "peer 1 x 1" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_the_peer_opens_what_the_artefact_was_built_from(tmp_path):
    folder = artefact(tmp_path / "built")  # of random weights
    assert bench.peer_checkpoint(folder, None) is None
    given = tmp_path / "given"
    given.mkdir()
    with pytest.raises(OperatorError, match="it lacks config.json"):
        bench.peer_checkpoint(folder, given)
    (given / "config.json").write_text("{}")
    assert bench.peer_checkpoint(folder, given) == (given, False)


def rounds(*pairs):
    return [LoopRound(rate, (latency,) * 3) for rate, latency in pairs]
