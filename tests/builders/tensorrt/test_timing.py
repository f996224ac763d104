"""steps/tensorrt/timing.py: timings are kept by version and GPU, and used again."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.builders.scripts import importable
from tests.doubles.gpu_libraries import make
from trimodal.errors import ArtefactError
from trimodal.manifest import GpuTarget


@pytest.fixture
def timing():
    with importable():
        yield importlib.import_module("steps.tensorrt.timing")


@pytest.fixture
def config(tensorrt_double) -> Any:
    return make(tensorrt_double.module.IBuilderConfig)


def test_a_directory_keeps_one_file_for_each_version_and_gpu(timing: ModuleType, tmp_path: Path):
    names = {
        timing.timing_cache_file(tmp_path, version, GpuTarget(sm=sm, name=name, count=1)).name
        for version in ("10.14.1.48", "11.4.0.9")
        for sm, name in (("9.0", "NVIDIA H200"), ("9.0", "NVIDIA H100 80GB HBM3"), ("8.9", "NVIDIA L4"))
    }
    assert len(names) == 6
    assert "tensorrt-10.14.1.48-sm9.0-nvidia-h100-80gb-hbm3.timing" in names


def test_what_was_stored_is_given_to_the_next_builder(timing, tensorrt_double, config, tmp_path):
    recorder, path = tensorrt_double.recorder, tmp_path / "caches" / "x.timing"
    recorder.returns("ITimingCache.serialize", b"timings")
    for wanted in (b"", b"timings"):
        timing.load_timing_cache(config, path)
        created, given = recorder.named("create_timing_cache")[-1], recorder.named("set_timing_cache")[-1]
        assert created.arguments == {"serialized_timing_cache": wanted}
        assert given.arguments == {"cache": created.result, "ignore_mismatch": False}
        timing.store_timing_cache(config, path)
    assert [one.name for one in path.parent.iterdir()] == ["x.timing"]


@pytest.mark.parametrize(("call", "value"), [("create_timing_cache", None), ("set_timing_cache", False)])
def test_what_tensorrt_does_not_take(timing, tensorrt_double, config, tmp_path, call, value):
    tensorrt_double.recorder.returns(f"IBuilderConfig.{call}", value)
    with pytest.raises(ArtefactError, match="does not take the timing cache .*: delete it, or name another"):
        timing.load_timing_cache(config, tmp_path / "x.timing")


def test_a_full_disk_costs_the_timings_and_not_the_plan(timing, config, tmp_path, capsys):
    (tmp_path / "caches").write_text("a file where the directory should be")
    timing.store_timing_cache(config, tmp_path / "caches" / "x.timing")
    assert "not written" in capsys.readouterr().out


def test_no_cache_to_store_writes_nothing(timing, tensorrt_double, config, tmp_path):
    tensorrt_double.recorder.returns("get_timing_cache", None)
    timing.store_timing_cache(config, tmp_path / "x.timing")
    assert list(tmp_path.iterdir()) == []
