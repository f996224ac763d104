"""Repositories that the server loads, or may load elsewhere, and that still go wrong."""

from __future__ import annotations

import json

from tests.check.cases.base import (
    BATCHES,
    CPU,
    DECOUPLED,
    DYNAMIC,
    EXECUTE,
    OK,
    PLAN,
    SENDS,
    STEP_1,
    STEP_2,
    TENSORS,
    Case,
    changed,
    pipeline,
    python,
    read_cases,
)

TIMEOUT = "default_queue_policy { default_timeout_microseconds: 1000 }"
GPU = "instance_group [ { count: 2 kind: KIND_GPU } ]\n"
MANIFEST = {
    "task": "vision",
    "runtime": "tensorrt",
    "runtime_version": "11.1",
    "precision": "fp16",
    "source": "net",
    "source_sha256": "0",
    "command": "trimodal build vision",
}


def plan(config: str, name: str = "m", **manifest: object) -> dict[str, str]:
    """A TensorRT model with an engine of a manifest."""
    text = config + 'default_model_filename: "engine/model.plan"\n'
    return {
        f"@{name}/config.pbtxt": text,
        f"@{name}/1/engine/model.plan": "x" * 1000,
        f"@{name}/1/engine/manifest.json": json.dumps(MANIFEST | manifest),
    }


PROFILES = [{"x": {"min": [1, 4], "opt": [4, 4], "max": [8, 4]}}]
OURS = 'backend: "python"\nparameters { key: "classifier" value { string_value: "onnx-int8" } }\n' + TENSORS
GLUE = "from trimodal.vision.steps import RankStep\n" + EXECUTE


def rank(more: str = "", batch: int = 8) -> dict[str, str]:
    """Our own model vision_rank, with more in its configuration."""
    config = f"{OURS}{more}max_batch_size: {batch}\n"
    return {"vision_rank/config.pbtxt": config, "vision_rank/1/model.py": GLUE}


def speech(group: str = "kind: KIND_CPU", count: int = 1, batch: int = 0) -> dict[str, str]:
    """Our own model of that name, of this instance group and max_batch_size."""
    config = changed(f"8 => {batch} && count: 1 kind: KIND_CPU => count: {count} {group}", BATCHES)
    return {"speech/config.pbtxt": config, "speech/1/model.py": GLUE}


COMPOSE = """services:
  triton:
    image: nvcr.io/nvidia/tritonserver:25.08-py3
    command: tritonserver --model-repository=/models --model-control-mode=explicit
"""
CLOSED = COMPOSE.replace(
    "explicit",
    "explicit\n      --http-restricted-api=model-repository,shared-memory:key=${KEY}"
    "\n      --grpc-restricted-protocol=model-repository,shared-memory:key=${KEY}",
)


def deployed(text: str) -> dict[str, str]:
    return {**OK, "@deployment/compose.yaml": text}


DELAYED = DYNAMIC % "max_queue_delay_microseconds: 12000"
TIMED = DYNAMIC % TIMEOUT
ON_GPU, ON_CPU = ('backend: "onnxruntime"\n' + group + TENSORS for group in (GPU, CPU))
GRAPHS = PLAN + "optimization { cuda { graphs: true %s } }\n"

HURTING = (
    *read_cases("hurting.txt"),
    Case("TRI025", {"@m/config.pbtxt": BATCHES, "@m/1/other.py": EXECUTE}, OK),
    Case(
        "TRI027",
        {"@m/config.pbtxt": PLAN, "@m/1/.gitkeep": ""},
        {"@m/config.pbtxt": PLAN, "@m/1/model.plan": ""},
    ),
    Case(
        "TRI034",
        pipeline(a=DELAYED, b=DYNAMIC % "max_queue_delay_microseconds: 9000"),
        pipeline(a=DELAYED, b=DYNAMIC % "max_queue_delay_microseconds: 900"),
        target={"slo_ms": 20},
        name="steps",
    ),
    Case("TRI035", python(TIMED), python(changed("count: 1 => count: 2", TIMED)), line=6),
    Case(
        "TRI066",
        pipeline(STEP_1.replace("@a", "@d"), STEP_2.replace("@b", "@e"))
        | python(DECOUPLED.replace(CPU, CPU + "max_batch_size: 8\n"), SENDS, "d")
        | python(BATCHES, name="e"),
        pipeline(),
    ),
    Case("TRI067", pipeline(a=DECOUPLED), pipeline(), line=8),
    Case(
        "TRI081",
        {"@m/config.pbtxt": ON_GPU, "@m/1/model.onnx": "x" * 600},
        {"@m/config.pbtxt": ON_GPU, "@m/1/model.onnx": "x" * 400},
        target={"gpu_memory": 1000},
    ),
    Case(
        "TRI082",
        {"@m/config.pbtxt": ON_GPU, "@m/1/model.onnx": ""},
        {"@m/config.pbtxt": ON_CPU, "@m/1/model.onnx": ""},
    ),
    Case(
        "TRI083",
        {"@m/config.pbtxt": GRAPHS % "output_copy_stream: true", "@m/1/model.plan": ""},
        {"@m/config.pbtxt": GRAPHS % "", "@m/1/model.plan": ""},
    ),
    Case(
        "TRI085",
        OK | {"@m/configs/cpu.pbtxt": BATCHES.replace("KIND_CPU", "KIND_GPU")},
        OK | {"@m/configs/gpu.pbtxt": BATCHES.replace("KIND_CPU", "KIND_GPU")},
        line=3,
    ),
    Case("TRI090", plan(PLAN, precision=8), plan(PLAN)),
    Case("TRI091", plan(changed("8 => 16", PLAN), profiles=PROFILES), plan(PLAN, profiles=PROFILES), line=2),
    Case(
        "TRI092",
        rank('parameters { key: "tpo_k" value { string_value: "5" } }\n'),
        {"vision_rank/config.pbtxt": OURS, "vision_rank/1/model.py": EXECUTE},
    ),
    Case("TRI093", speech(count=2), speech(count=1), line=3),
    Case(
        "TRI093", speech("kind: KIND_GPU gpus: [ 0, 1 ]"), speech("kind: KIND_GPU gpus: [ 0 ]"), name="gpus"
    ),
    Case("TRI094", speech(batch=4), speech(), line=2, name="one-by-one"),
    Case("TRI094", rank(batch=0), rank(batch=1), line=5, name="batches"),
    Case("TRI115", python(DECOUPLED, EXECUTE), python(DECOUPLED, SENDS)),
    Case("TRI120", deployed(COMPOSE), deployed(CLOSED), line=4),
    Case("TRI121", deployed(COMPOSE), deployed(CLOSED), line=4),
    Case("TRI122", deployed(COMPOSE.replace("25.08", "24.10")), deployed(CLOSED), line=3),
)
