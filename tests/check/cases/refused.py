"""Repositories that the server does not load, each with what it says."""

from __future__ import annotations

from pathlib import Path

from tests.check.cases.base import (
    BATCHES,
    CPU,
    DECOUPLED,
    DYNAMIC,
    ENSEMBLE,
    EXECUTE,
    OK,
    SENDS,
    SEQUENCE,
    STATE,
    STEP_1,
    STEP_2,
    TENSORS,
    UNREADABLE,
    WARM,
    Case,
    pipeline,
    python,
    read_cases,
    tensor,
)

REFUSED = (
    *read_cases(Path(__file__).with_name("refused.txt")),
    Case("TRI001", python('backend "python"\n'), OK, UNREADABLE, 1, name="no-colon"),
    Case("TRI001", python(tensor("dims: [ 4 ]").replace("TYPE_FP32", "FP32")), OK, UNREADABLE, name="enum"),
    Case("TRI001", python(BATCHES.replace("TYPE_FP32", "9999999999")), OK, UNREADABLE, name="enum-too-large"),
    Case(
        "TRI001",
        python(DYNAMIC % "" + "sequence_batching { }\n"),
        OK,
        UNREADABLE,
        name="two-schedulers",
    ),
    Case("TRI002", python(BATCHES + "\nmax_batchsize: 4\n"), OK, UNREADABLE, 7, name="misspelt"),
    Case("TRI001", python(BATCHES.replace("[ 4 ]", "[ 4, ]")), OK, UNREADABLE, 4, name="trailing-comma"),
    Case(
        "TRI003",
        pipeline(STEP_1, STEP_2, "max_inflight_requests: 4"),
        pipeline(),
        UNREADABLE,
    ),
    Case(
        "TRI011",
        {"@m/config.pbtxt": TENSORS, "@m/1/weights.bin": ""},
        {"@m/config.pbtxt": TENSORS, "@m/1/model.py": EXECUTE},
        "Could not determine backend",
        name="nothing",
    ),
    Case(
        "TRI011",
        python('platform: "onnx"\n' + TENSORS),
        python('platform: "onnxruntime_onnx"\n' + TENSORS),
        "unexpected platform type",
        name="platform",
    ),
    Case(
        "TRI012",
        python('backend: "onnxruntime"\nplatform: "tensorrt_plan"\n' + TENSORS),
        python('backend: "onnxruntime"\nplatform: "onnxruntime_onnx"\n' + TENSORS),
        "unexpected 'platform' and 'backend' pair",
    ),
    Case(
        "TRI013",
        {"@m/config.pbtxt": ENSEMBLE, "@m/1/.gitkeep": ""},
        pipeline(),
        "ensemble scheduling must be set",
        name="no-steps",
    ),
    Case("TRI013", pipeline(head=BATCHES), pipeline(), "ensemble scheduling cannot be set", name="platform"),
    Case("TRI014", {"@m/config.pbtxt": BATCHES}, OK, "at least one version must be available", name="none"),
    Case("TRI016", python(tensor("")), OK, "must specify 'dims'", name="dims"),
    Case(
        "TRI018",
        python(tensor("dims: [ 1 ] reshape { }").replace("8", "0")),
        python(tensor("dims: [ 1 ] reshape { }")),
        "cannot have empty reshape",
        name="scalar",
    ),
    Case(
        "TRI021",
        python(
            BATCHES.replace("dims: [ 4 ] } ]\n", 'dims: [ 4 ] label_filename: "labels.txt" } ]\n').replace(
                'label_filename: "labels.txt" } ]\noutput', "} ]\noutput"
            )
        ),
        python(
            BATCHES.replace("dims: [ 4 ] } ]\n", 'dims: [ 4 ] label_filename: "labels.txt" } ]\n').replace(
                'label_filename: "labels.txt" } ]\noutput', "} ]\noutput"
            )
        )
        | {"@m/labels.txt": "cat\ndog\n"},
        "labels.txt",
    ),
    Case(
        "TRI022",
        python(DECOUPLED + "response_cache { enable: true }\n", SENDS),
        python(DECOUPLED, SENDS),
        "Response Cache does not currently support",
        name="decoupled",
    ),
    Case(
        "TRI022",
        python(SEQUENCE % "" + "response_cache { enable: true }\n"),
        python(SEQUENCE % ""),
        "Response Cache does not currently support",
        name="sequences",
    ),
    Case(
        "TRI024",
        python(WARM % 'dims: [ 4 ] input_data_file: "x.bin"'),
        python(WARM % 'dims: [ 4 ] input_data_file: "x.bin"') | {"@m/warmup/x.bin": "0123456789abcdef"},
        "x.bin",
        name="file",
    ),
    Case(
        "TRI044",
        python(SEQUENCE % (STATE % 'dims: [ 1 ] data_file: "zero"')),
        python(SEQUENCE % (STATE % 'dims: [ 1 ] data_file: "zero"')) | {"@m/initial_state/zero": "0000"},
        "initial_state/zero",
        name="file",
    ),
    Case("TRI050", pipeline(" "), pipeline(), "must specify 'step'", name="none"),
    Case(
        "TRI053",
        pipeline(
            a=BATCHES.replace(
                "dims: [ 4 ] } ]\noutput",
                'dims: [ 4 ] }, { name: "w" data_type: TYPE_FP32 dims: [ 4 ] } ]\noutput',
            )
        ),
        pipeline(
            a=BATCHES.replace(
                "dims: [ 4 ] } ]\noutput",
                'dims: [ 4 ] }, { name: "w" data_type: TYPE_FP32 dims: [ 4 ] optional: true } ]\noutput',
            )
        ),
        "is not mapped to any ensemble tensors",
    ),
    Case(
        "TRI054",
        pipeline(b=BATCHES.replace("TYPE_FP32", "TYPE_INT32", 1)),
        pipeline(),
        "inconsistent data type",
    ),
    Case(
        "TRI055", pipeline(b=tensor("dims: [ 5 ]")), pipeline(b=tensor("dims: [ -1 ]")), "inconsistent shape"
    ),
    Case(
        "TRI058",
        pipeline(STEP_1, STEP_2, STEP_2.replace('value: "y"', 'value: "spare"')),
        pipeline(),
        "is unused in ensemble",
    ),
    Case("TRI059", pipeline(STEP_1, STEP_2, STEP_2), pipeline(), "can appear in an output map only once"),
    Case(
        "TRI061",
        pipeline(a=BATCHES.replace("8", "4")),
        pipeline(a=BATCHES.replace("8", "16")),
        "maximum batch size",
    ),
    Case(
        "TRI062",
        {
            "@m/config.pbtxt": 'platform: "ensemble"\n'
            + TENSORS
            + "ensemble_scheduling {\n"
            + STEP_1.replace("@a", "@d")
            + STEP_1.replace("@a", "@d").replace("middle", "second")
            + 'step { model_name: "@j" model_version: -1 input_map { key: "x" value: "middle" } '
            'input_map { key: "w" value: "second" } output_map { key: "y" value: "y" } }\n}\n',
            "@m/1/.gitkeep": "",
            **python(DECOUPLED, SENDS, "d"),
            **python(
                'backend: "python"\n'
                + CPU
                + TENSORS
                + 'input [ { name: "w" data_type: TYPE_FP32 dims: [ 4 ] } ]\n',
                name="j",
            ),
        },
        pipeline(),
        "originated from different decoupled",
    ),
    Case("TRI110", python(BATCHES, EXECUTE + "    def (\n"), OK, "SyntaxError", 8),
    Case("TRI111", python(BATCHES, EXECUTE.replace("TritonPythonModel", "Model")), OK, "TritonPythonModel"),
)
