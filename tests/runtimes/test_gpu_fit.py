"""Whether a compiled engine fits: versions, GPUs, shapes, precision, checkpoint; each misfit one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimodal.errors import ArtefactError
from trimodal.manifest import GpuTarget, InputRange, Manifest
from trimodal.runtimes import gpu_fit
from trimodal.runtimes.gpu_device import Gpu

DIRECTORY = Path("/engines/vision_classify/tensorrt-fp16")
COMMAND = "python build/vision_tensorrt.py CHECKPOINT --precision fp16"
H200 = Gpu(0, "NVIDIA H200", "9.0", 150 << 30, 149 << 30, "580.1")
L4 = Gpu(1, "NVIDIA L4", "8.9", 24 << 30, 23 << 30, "580.1")


def manifest(**changes: Any) -> Manifest:
    """Of a plan with two profiles for one H200."""
    values: dict[str, Any] = {
        "task": "vision",
        "runtime": "tensorrt",
        "runtime_version": "10.14.1.48",
        "precision": "fp16",
        "source": "resnet50",
        "source_sha256": "abcdef0123456789" * 4,
        "command": COMMAND,
        "gpu": GpuTarget(sm="9.0", name="NVIDIA H200", count=1),
        "profiles": [
            {"pixels": InputRange(min=(1, 3, 224, 224), opt=(8, 3, 224, 224), max=(16, 3, 224, 224))},
            {"pixels": InputRange(min=(32, 3, 224, 224), opt=(32, 3, 224, 224), max=(64, 3, 224, 224))},
        ],
    }
    return Manifest(**{**values, **changes})


def refused(check: Callable[..., None], engine: Manifest, *arguments: Any) -> str:
    """The sentence: it names the directory, and the command that builds the engine again."""
    with pytest.raises(ArtefactError) as caught:
        check(DIRECTORY, engine, *arguments)
    sentence = str(caught.value)
    assert sentence.startswith(f"the engine in {DIRECTORY} ")
    assert sentence.endswith(f": build again with: {COMMAND}")
    assert "\n" not in sentence
    return sentence


def test_the_same_version_fits_and_no_other():
    gpu_fit.check_version(DIRECTORY, manifest(), "10.14.1.48")
    for other in ("10.14.1", "10.14.1.480", "11.4.0.9", ""):
        told = refused(gpu_fit.check_version, manifest(), other)
        assert f"was built with tensorrt 10.14.1.48, here is {other}" in told


def test_the_same_sm_fits_whatever_the_card():
    gpu_fit.check_gpu(DIRECTORY, manifest(), [replace(H200, name="NVIDIA H100 80GB HBM3")])
    gpu_fit.check_gpu(DIRECTORY, manifest(), [H200, L4])  # It runs on the first alone.
    gpu_fit.check_gpu(DIRECTORY, manifest(gpu=None), [])  # It is tied to none.
    told = refused(gpu_fit.check_gpu, manifest(), [L4, H200])
    assert "was compiled for SM 9.0 (NVIDIA H200), GPU 1 has 8.9 (NVIDIA L4)" in told


def test_an_engine_over_several_gpus_wants_them_all_alike():
    pair = manifest(gpu=GpuTarget(sm="9.0", name="NVIDIA H200", count=2))
    gpu_fit.check_gpu(DIRECTORY, pair, [H200, replace(H200, index=1)])
    assert "was built for 2 GPUs, and 1 can be seen here" in refused(gpu_fit.check_gpu, pair, [H200])
    assert "was built for 2 GPUs, and none can be seen here" in refused(gpu_fit.check_gpu, pair, [])
    assert "GPU 1 has 8.9" in refused(gpu_fit.check_gpu, pair, [H200, L4])


@pytest.mark.parametrize("batch", [1, 16, 32, 64])
def test_a_shape_of_any_profile_fits(batch):
    gpu_fit.check_shapes(DIRECTORY, manifest(), {"pixels": (batch, 3, 224, 224)}, f"max_batch_size {batch}")


@pytest.mark.parametrize("shape", [(17, 3, 224, 224), (65, 3, 224, 224), (1, 3, 224, 256), (1, 3, 224), ()])
def test_a_shape_between_or_beside_the_profiles_is_refused(shape):
    told = refused(gpu_fit.check_shapes, manifest(), {"pixels": shape}, "max_batch_size 17")
    text = "×".join(map(str, shape))
    assert f"does not fit max_batch_size 17: pixels takes 32×3×224×224 to 64×3×224×224, not {text}" in told


def test_all_inputs_must_fit_one_profile_together():
    def both(tokens: int, past: int) -> dict[str, InputRange]:
        return {
            "tokens": InputRange(min=(1, 1), opt=(8, tokens), max=(8, tokens)),
            "past": InputRange(min=(1, 0), opt=(8, past), max=(8, past)),
        }

    engine = manifest(profiles=[both(228, 0), both(1, 447)])
    gpu_fit.check_shapes(DIRECTORY, engine, {"tokens": (8, 228), "past": (8, 0)}, "a prompt")
    gpu_fit.check_shapes(DIRECTORY, engine, {"tokens": (8, 1), "past": (8, 447)}, "a step")
    told = refused(gpu_fit.check_shapes, engine, {"tokens": (8, 228), "past": (8, 447)}, "a long prompt")
    assert "does not fit a long prompt: tokens takes 1×1 to 8×1, not 8×228" in told


def test_inputs_that_profiles_do_not_name_and_engines_without_profiles_are_of_fixed_shapes():
    gpu_fit.check_shapes(DIRECTORY, manifest(), {"mask": (1,), "pixels": (2, 3, 224, 224)}, "a mask")
    gpu_fit.check_shapes(DIRECTORY, manifest(profiles=[]), {"pixels": (999,)}, "anything")


def test_precision_and_checkpoint_are_checked_where_they_are_asked_for():
    gpu_fit.check_precision(DIRECTORY, manifest(), "")
    gpu_fit.check_precision(DIRECTORY, manifest(), "fp16")
    told = refused(gpu_fit.check_precision, manifest(), "fp8")
    assert "is fp16, and the configuration asks for fp8" in told
    gpu_fit.check_checkpoint(DIRECTORY, manifest(), "")
    gpu_fit.check_checkpoint(DIRECTORY, manifest(), "abcdef")
    gpu_fit.check_checkpoint(DIRECTORY, manifest(), "abcdef0123456789" * 4)
    told = refused(gpu_fit.check_checkpoint, manifest(), "012345678901234567")
    assert "was built from a checkpoint with hash abcdef012345, not 012345678901" in told
