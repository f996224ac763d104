"""What tests of plans share: the machine's GPU, a build, and a build that is refused."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trimodal.errors import ArtefactError
from trimodal.gpu.device import Gpu
from trimodal.manifest import InputRange

H200 = Gpu(0, "NVIDIA H200", "9.0", 150 << 30, 140 << 30, "580.1")
RANGE = InputRange(min=(1, 3, 8, 8), opt=(4, 3, 8, 8), max=(16, 3, 8, 8))


def build(plans: ModuleType, graph: Path, *profiles: dict[str, InputRange], **options: Any) -> Any:
    """`model.plan` beside the graph, with one profile of RANGE unless told others."""
    chosen = list(profiles) or [{"pixels": RANGE}]
    return plans.build_plan(graph, graph.with_name("model.plan"), chosen, plans.PlanOptions(**options))


def refused(plans: ModuleType, graph: Path, *profiles: dict[str, InputRange], **options: Any) -> str:
    """The sentence; the plan of an earlier build is left alone, and nothing else is left."""
    plan = graph.with_name("model.plan")
    plan.write_bytes(b"old")
    with pytest.raises(ArtefactError) as caught:
        build(plans, graph, *profiles, **options)
    assert plan.read_bytes() == b"old"
    assert {path.name for path in graph.parent.iterdir()} <= {"model.onnx", "model.plan", "caches"}
    assert "\n" not in str(caught.value)
    return str(caught.value)
