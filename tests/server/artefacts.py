"""Repositories with built artefacts for tests: manifests that are real, engines that are a few bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from trimodal.manifest import GpuTarget, InputRange, Manifest, write_manifest
from trimodal.runtimes.gpu_device import Gpu

H200 = Gpu(index=0, name="NVIDIA H200", sm="9.0", memory=141 << 30, free=140 << 30, driver="580.95.05")
L4 = Gpu(index=0, name="NVIDIA L4", sm="8.9", memory=24 << 30, free=23 << 30, driver="550.54.15")
INPUT = {"height": 224, "width": 224, "resize": "exact", "resize_to": None, "filter": "bilinear"}
PLAN = """
name: "vision_classify" platform: "tensorrt_plan" max_batch_size: 16
default_model_filename: "tensorrt-fp16/model.plan"
input [ { name: "pixels" data_type: TYPE_UINT8 dims: [ 3, -1, -1 ] } ]
output [ { name: "logits" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { count: 2 kind: KIND_GPU } ]
optimization { cuda { graphs: true graph_spec [
  { batch_size: 8 input { key: "pixels" value { dim: [ 3, 224, 224 ] } } }
] } }
"""


def python_model(name: str, **parameters: str) -> str:
    """A config.pbtxt of the Python backend."""
    lines = [f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}' for k, v in parameters.items()]
    return "\n".join([f'name: "{name}"', 'backend: "python"', *lines])


def add_model(repository: Path, config: str) -> Path:
    """A model folder of this config; its version's folder."""
    name = text_format.Parse(config, ModelConfig()).name
    version = repository / name / "1"
    version.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    return version


def build(directory: Path, task: str, runtime: str, file: str = "model.bin", **fields: Any) -> Manifest:
    """A built artefact with one file; a classifier has labels and an input as real ones do."""
    directory.mkdir(parents=True)
    (directory / file).write_bytes(b"weights")
    if task == "vision":
        (directory / "labels.json").write_text(json.dumps(["cat", "dog"]))
        fields = {"shapes": {"classes": 2}, "extra": {"pixels": "uint8", "input": INPUT}} | fields
    manifest = Manifest(
        **{
            "task": task,
            "runtime": runtime,
            "runtime_version": "1.0",
            "precision": directory.name.rpartition("-")[2],
            "source": "checkpoint",
            "source_sha256": "ab" * 32,
            "command": f"python build/{task}.py checkpoint",
        }
        | fields
    )
    write_manifest(directory, manifest)
    return manifest


def plan_fields(
    most: int = 16, side: int = 224, sm: str = "9.0", version: str = "10.14.1.48"
) -> dict[str, Any]:
    """What the manifest of a vision plan says besides."""
    ranges = InputRange(min=(1, 3, side, side), opt=(8, 3, side, side), max=(most, 3, side, side))
    return {
        "runtime_version": version,
        "gpu": GpuTarget(sm=sm, name="NVIDIA H200"),
        "profiles": [{"pixels": ranges}],
    }
