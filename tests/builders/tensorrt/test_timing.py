"""steps/tensorrt/timing.py: timings are kept with whose they are; those of another machine are refused."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.builders.scripts import importable
from tests.doubles.gpu_libraries import make
from trimodal.errors import ArtefactError
from trimodal.manifest import GpuTarget

VERSION, H200 = "10.14.1.48", GpuTarget(sm="9.0", name="NVIDIA H200", count=1)


@pytest.fixture
def timing() -> Iterator[ModuleType]:
    with importable():
        yield importlib.import_module("steps.tensorrt.timing")


@pytest.fixture
def config(tensorrt_double: SimpleNamespace) -> Any:
    return make(tensorrt_double.module.IBuilderConfig)


@pytest.fixture
def stored(timing: ModuleType, tensorrt_double: SimpleNamespace, config: Any, tmp_path: Path) -> Path:
    """A cache as a build on one H200 leaves it."""
    tensorrt_double.recorder.returns("ITimingCache.serialize", b"timings")
    path: Path = timing.timing_cache_file(tmp_path / "caches", VERSION, H200)
    timing.store_timing_cache(config, path, VERSION, H200)
    return path


def test_a_directory_keeps_one_file_for_each_version_and_gpu(timing, tmp_path):
    names = {
        timing.timing_cache_file(tmp_path, version, GpuTarget(sm=sm, name=name, count=1)).name
        for version in ("10.14.1.48", "11.4.0.9")
        for sm, name in (("9.0", "NVIDIA H200"), ("9.0", "NVIDIA H100 80GB HBM3"), ("8.9", "NVIDIA L4"))
    }
    assert len(names) == 6
    assert "tensorrt-10.14.1.48-sm9.0-nvidia-h100-80gb-hbm3.timing" in names
    assert timing.timing_cache_file(None, VERSION, H200) is None


def test_what_was_stored_is_given_to_the_next_builder(timing, tensorrt_double, config, stored):
    assert stored.read_bytes() == b"timings"
    note = json.loads((stored.parent / f"{stored.name}.json").read_text())
    assert note == {"tensorrt": VERSION, "sm": "9.0", "gpu": "NVIDIA H200"}
    assert timing.timing_cache_file(stored, VERSION, H200) == stored
    timing.load_timing_cache(config, stored, VERSION, H200)
    recorder = tensorrt_double.recorder
    (created,) = recorder.named("create_timing_cache")
    assert created.arguments == {"serialized_timing_cache": b"timings"}
    (given,) = recorder.named("set_timing_cache")
    assert given.arguments == {"cache": created.result, "ignore_mismatch": False}
    assert [path.name for path in stored.parent.iterdir() if "partial" in path.name] == []


def test_the_first_build_begins_with_an_empty_cache(timing, tensorrt_double, config, tmp_path):
    timing.load_timing_cache(config, tmp_path / "none.timing", VERSION, H200)
    (created,) = tensorrt_double.recorder.named("create_timing_cache")
    assert created.arguments == {"serialized_timing_cache": b""}


@pytest.mark.parametrize(
    ("version", "gpu"),
    [
        ("11.4.0.9", H200),
        (VERSION, GpuTarget(sm="8.9", name="NVIDIA L4", count=1)),
        (VERSION, GpuTarget(sm="9.0", name="NVIDIA H100 80GB HBM3", count=1)),
    ],
)
def test_timings_of_another_machine_are_refused(timing, stored, version, gpu):
    with pytest.raises(ArtefactError) as caught:
        timing.timing_cache_file(stored, version, gpu)
    sentence = str(caught.value)
    assert "is of TensorRT 10.14.1.48 on SM 9.0 (NVIDIA H200)" in sentence
    assert f"here is {version} on {gpu.sm} ({gpu.name}): name another --timing-cache" in sentence


def test_a_damaged_note_is_refused(timing, stored):
    note = stored.parent / f"{stored.name}.json"
    note.write_text("{")
    with pytest.raises(ArtefactError, match="is damaged: delete it and"):
        timing.timing_cache_file(stored, VERSION, H200)


@pytest.mark.parametrize(("call", "value"), [("create_timing_cache", None), ("set_timing_cache", False)])
def test_what_tensorrt_itself_does_not_take(timing, tensorrt_double, config, stored, call, value):
    """A cache that trtexec wrote elsewhere has no note."""
    tensorrt_double.recorder.returns(f"IBuilderConfig.{call}", value)
    with pytest.raises(ArtefactError, match="does not take the timing cache .* on NVIDIA H200: delete it"):
        timing.load_timing_cache(config, stored, VERSION, H200)


def test_a_full_disk_costs_the_timings_and_not_the_plan(timing, config, tmp_path, capsys):
    (tmp_path / "caches").write_text("a file where the directory should be")
    timing.store_timing_cache(config, tmp_path / "caches" / "x.timing", VERSION, H200)
    assert "not written" in capsys.readouterr().out


def test_no_cache_to_store_writes_nothing(timing, tensorrt_double, config, tmp_path):
    tensorrt_double.recorder.returns("get_timing_cache", None)
    timing.store_timing_cache(config, tmp_path / "x.timing", VERSION, H200)
    assert list(tmp_path.iterdir()) == []
