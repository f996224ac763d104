"""Repositories that the server loads, or may load elsewhere, and that still go wrong."""

from __future__ import annotations

import json

from tests.check.cases.base import (
    BATCHES,
    CORRELATION,
    CPU,
    DECOUPLED,
    DYNAMIC,
    EXECUTE,
    OK,
    PLAN,
    SENDS,
    SEQUENCE,
    STEP_1,
    STEP_2,
    TENSORS,
    Case,
    pipeline,
    python,
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
ASYNC = EXECUTE.replace("def execute", "async def execute").replace(
    "import triton", "import asyncio\nimport time\nimport triton"
)
RETURNS = "        return ["
OURS = 'backend: "python"\nparameters { key: "artefact" value { string_value: "onnx-int8" } }\n' + TENSORS
GLUE = "from trimodal.vision.steps import RankStep\n" + EXECUTE
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


HURTING = (
    Case(
        "TRI005",
        python(BATCHES + 'parameters { key: "dir" value { string_value: "${engine_dir}" } }\n'),
        python(BATCHES + 'parameters { key: "dir" value { string_value: "/engines" } }  # ${engine_dir}\n'),
        line=6,
    ),
    Case("TRI025", {"@m/config.pbtxt": BATCHES, "@m/1/other.py": EXECUTE}, OK),
    Case(
        "TRI026",
        python(BATCHES.replace("output [ {", 'output [ { name: "y" data_type: TYPE_INT32 dims: [ 4 ] }, {')),
        OK,
    ),
    Case(
        "TRI027",
        {"@m/config.pbtxt": PLAN, "@m/1/.gitkeep": ""},
        {"@m/config.pbtxt": PLAN, "@m/1/model.plan": ""},
    ),
    Case("TRI033", python(DYNAMIC.replace("8", "1") % ""), python(DYNAMIC % "")),
    Case(
        "TRI034",
        python(DYNAMIC % "max_queue_delay_microseconds: 20000"),
        python(DYNAMIC % "max_queue_delay_microseconds: 2000"),
        target={"slo_ms": 20},
        line=6,
    ),
    Case(
        "TRI034",
        pipeline(
            a=DYNAMIC % "max_queue_delay_microseconds: 12000",
            b=DYNAMIC % "max_queue_delay_microseconds: 9000",
        ),
        pipeline(
            a=DYNAMIC % "max_queue_delay_microseconds: 12000", b=DYNAMIC % "max_queue_delay_microseconds: 900"
        ),
        target={"slo_ms": 20},
        name="steps",
    ),
    Case(
        "TRI035",
        python(DYNAMIC % TIMEOUT),
        python((DYNAMIC % TIMEOUT).replace("count: 1", "count: 2")),
        line=6,
    ),
    Case(
        "TRI036",
        python(DYNAMIC % "" + "response_cache { enable: true }\n"),
        python(BATCHES + "response_cache { enable: true }\n"),
        line=7,
    ),
    Case(
        "TRI042",
        python((SEQUENCE % "").replace("5000000", "500000")),
        python(SEQUENCE % ""),
        line=6,
    ),
    Case("TRI043", python(SEQUENCE % (CORRELATION % "STRING")), python(SEQUENCE % (CORRELATION % "UINT64"))),
    Case(
        "TRI065",
        pipeline(a=DYNAMIC % "default_queue_policy { max_queue_size: 16 }"),
        pipeline(a=DYNAMIC % "max_queue_delay_microseconds: 100"),
    ),
    Case(
        "TRI066",
        pipeline(STEP_1.replace("@a", "@d"), STEP_2.replace("@b", "@e"))
        | python(DECOUPLED.replace(CPU, CPU + "max_batch_size: 8\n"), SENDS, "d")
        | python(BATCHES, name="e"),
        pipeline(),
    ),
    Case(
        "TRI070",
        OK | {"@m/configs/gpu.pbtxt": BATCHES.replace("TYPE_FP32", "TYPE_FP16", 1)},
        OK | {"@m/configs/gpu.pbtxt": BATCHES.replace("count: 1", "count: 2")},
        line=4,
    ),
    Case(
        "TRI071",
        OK | {"@m/configs/gpu.pbtxt": BATCHES.replace("max_batch_size: 8", "max_batch_size: 0")},
        OK | {"@m/configs/gpu.pbtxt": BATCHES.replace("max_batch_size: 8", "max_batch_size: 16")},
    ),
    Case(
        "TRI080",
        python(BATCHES.replace("count: 1", "count: 9")),
        python(BATCHES.replace("count: 1", "count: 8")),
        target={"cores": 8},
        line=3,
    ),
    Case(
        "TRI081",
        {"@m/config.pbtxt": 'backend: "onnxruntime"\n' + GPU + TENSORS, "@m/1/model.onnx": "x" * 600},
        {"@m/config.pbtxt": 'backend: "onnxruntime"\n' + GPU + TENSORS, "@m/1/model.onnx": "x" * 400},
        target={"gpu_memory": 1000},
    ),
    Case(
        "TRI082",
        {"@m/config.pbtxt": 'backend: "onnxruntime"\n' + GPU + TENSORS, "@m/1/model.onnx": ""},
        {"@m/config.pbtxt": 'backend: "onnxruntime"\n' + CPU + TENSORS, "@m/1/model.onnx": ""},
    ),
    Case(
        "TRI083",
        {
            "@m/config.pbtxt": PLAN + "optimization { cuda { graphs: true output_copy_stream: true } }\n",
            "@m/1/model.plan": "",
        },
        {"@m/config.pbtxt": PLAN + "optimization { cuda { graphs: true } }\n", "@m/1/model.plan": ""},
    ),
    Case("TRI090", plan(PLAN, precision=8), plan(PLAN)),
    Case(
        "TRI091",
        plan(PLAN.replace("max_batch_size: 8", "max_batch_size: 16"), profiles=PROFILES),
        plan(PLAN, profiles=PROFILES),
        line=2,
    ),
    Case(
        "TRI092",
        {
            "vision_rank/config.pbtxt": OURS + 'parameters { key: "tpo_k" value { string_value: "5" } }\n',
            "vision_rank/1/model.py": GLUE,
        },
        {"vision_rank/config.pbtxt": OURS, "vision_rank/1/model.py": EXECUTE},
    ),
    Case(
        "TRI112",
        python(BATCHES, "import no_such_module\n" + EXECUTE),
        python(BATCHES, "import json\n" + EXECUTE),
        line=1,
    ),
    Case(
        "TRI114",
        python(BATCHES, ASYNC.replace(RETURNS, "        time.sleep(1)\n" + RETURNS)),
        python(BATCHES, ASYNC.replace(RETURNS, "        await asyncio.sleep(1)\n" + RETURNS)),
        line=9,
    ),
    Case("TRI115", python(DECOUPLED, EXECUTE), python(DECOUPLED, SENDS)),
    Case("TRI029", python(BATCHES.replace("count: 1", "count: 0")), OK, line=3),
    Case("TRI037", python(DYNAMIC.replace("8", "0") % ""), python(DYNAMIC % "")),
    Case(
        "TRI037",
        python(DYNAMIC.replace("8", "0") % ""),
        python(DYNAMIC.replace("8", "0") % "default_queue_policy { max_queue_size: 4 }"),
        name="queue",
    ),
    Case(
        "TRI037",
        python(DYNAMIC.replace("8", "0") % ""),
        python(DYNAMIC.replace("8", "0") % "priority_levels: 2 default_priority_level: 1"),
        name="priorities",
    ),
    Case("TRI067", pipeline(a=DECOUPLED), pipeline(), line=8),
    Case("TRI117", python(BATCHES, EXECUTE.replace('"x"', '"z"')), OK, line=7),
    Case(
        "TRI118",
        python(
            BATCHES, EXECUTE.replace("[pb_utils.get_input", '[pb_utils.Tensor("z", r), pb_utils.get_input')
        ),
        python(
            BATCHES, EXECUTE.replace("[pb_utils.get_input", '[pb_utils.Tensor("y", r), pb_utils.get_input')
        ),
        line=7,
    ),
    Case("TRI119", python(BATCHES, EXECUTE.replace("return [", "done = [")), OK, line=6),
    Case("TRI116", python(BATCHES, EXECUTE.replace("execute", "run")), OK, line=5),
    Case("TRI120", deployed(COMPOSE), deployed(CLOSED), line=4),
    Case("TRI121", deployed(COMPOSE), deployed(CLOSED), line=4),
    Case("TRI122", deployed(COMPOSE.replace("25.08", "24.10")), deployed(CLOSED), line=3),
)
