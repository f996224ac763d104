"""Repositories that the server does not load, each with what it says."""

from __future__ import annotations

from tests.check.cases.base import (
    BATCHES,
    CONTROL,
    CORRELATION,
    CPU,
    DECOUPLED,
    DYNAMIC,
    ENSEMBLE,
    EXECUTE,
    OK,
    PAIR,
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
    tensor,
)

BATCH_INPUT = (
    'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_%s source_input: "%s" } ]\n'
)

REFUSED = (
    Case("TRI001", python('backend "python"\n'), OK, UNREADABLE, 1, name="no-colon"),
    Case("TRI001", python(BATCHES + "dynamic_batching {\n"), OK, UNREADABLE, name="open-bracket"),
    Case("TRI001", python(BATCHES + "max_batch_size: many\n"), OK, UNREADABLE, name="not-a-number"),
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
    Case(
        "TRI001",
        python(BATCHES + 'metric_tags { key: "a\\q" value: "b" }\n'),
        OK,
        UNREADABLE,
        6,
        name="escape",
    ),
    Case("TRI001", python(BATCHES.replace("[ 4 ]", "[ 4, ]")), OK, UNREADABLE, 4, name="trailing-comma"),
    Case("TRI001", python(BATCHES + "// a comment\n"), OK, UNREADABLE, 6, name="comment"),
    Case("TRI001", python(BATCHES + "max_batch_size: 4\n"), OK, UNREADABLE, 6, name="twice"),
    Case(
        "TRI002",
        python(BATCHES + "max_queue_delay_microseconds: 100\n"),
        python(DYNAMIC % "max_queue_delay_microseconds: 100"),
        UNREADABLE,
        name="misplaced",
    ),
    Case(
        "TRI003",
        pipeline(STEP_1, STEP_2, "max_inflight_requests: 4"),
        pipeline(),
        UNREADABLE,
    ),
    Case("TRI004", python(BATCHES.replace("8", "${max_batch_size}")), OK, UNREADABLE, 2),
    Case(
        "TRI010",
        python(BATCHES + 'name: "other"\n'),
        python(BATCHES + 'name: "@m"\n'),
        "directory name must equal",
        6,
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
        pipeline(head=ENSEMBLE + 'backend: "python"'),
        pipeline(),
        "empty backend type",
        name="backend",
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
    Case(
        "TRI014",
        python(BATCHES + "version_policy { specific { versions: [ 2 ] } }\n"),
        python(BATCHES + "version_policy { specific { versions: [ 1 ] } }\n"),
        "at least one version must be available",
        name="policy",
    ),
    Case(
        "TRI014",
        python(BATCHES + "version_policy { latest { num_versions: 0 } }\n"),
        python(BATCHES + "version_policy { latest { num_versions: 1 } }\n"),
        "at least one version must be available",
        name="latest-0",
    ),
    Case("TRI015", python(BATCHES.replace("8", "-1")), OK, "must be non-negative", 2),
    Case("TRI016", python(tensor("")), OK, "must specify 'dims'", name="dims"),
    Case(
        "TRI016",
        python(BATCHES.replace("data_type: TYPE_FP32", "", 1)),
        OK,
        "must specify 'data_type'",
        name="type",
    ),
    Case("TRI016", python(BATCHES.replace('name: "x"', "")), OK, "must specify 'name'", name="name"),
    Case(
        "TRI017",
        python(tensor("dims: [ 0 ]")),
        python(tensor("dims: [ -1 ]")),
        "dimension must be integer >= 1",
    ),
    Case(
        "TRI018",
        python(tensor("dims: [ 4 ] reshape { shape: [ 2, 3 ] }")),
        python(tensor("dims: [ 4 ] reshape { shape: [ 2, 2 ] }")),
        "different size for dims and reshape",
    ),
    Case(
        "TRI018",
        python(tensor("dims: [ 1 ] reshape { }").replace("8", "0")),
        python(tensor("dims: [ 1 ] reshape { }")),
        "cannot have empty reshape",
        name="scalar",
    ),
    Case(
        "TRI019",
        python(tensor("dims: [ 4 ] format: FORMAT_NCHW")),
        python(tensor("dims: [ 3, 4, 4 ] format: FORMAT_NCHW")),
        "require 3 dims",
        name="format",
    ),
    Case(
        "TRI019",
        python(tensor("dims: [ 4 ] is_shape_tensor: true")),
        OK,
        "shape tensors are only supported",
        name="shape-tensor",
    ),
    Case(
        "TRI020",
        python(BATCHES + BATCH_INPUT % ("FP32", "z")),
        python(BATCHES + BATCH_INPUT % ("FP32", "x")),
        "unknown source input name",
    ),
    Case(
        "TRI020",
        python(BATCHES + BATCH_INPUT % ("INT8", "x")),
        OK,
        "batch input data type must be",
        name="type",
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
        "TRI023",
        python(BATCHES.replace("KIND_CPU", "KIND_CPU gpus: [ 0 ]")),
        OK,
        "has kind KIND_CPU but specifies one or more GPUs",
        3,
        name="gpus",
    ),
    Case(
        "TRI023",
        python(BATCHES.replace("KIND_CPU", 'KIND_CPU profile: [ "0" ]')),
        OK,
        "only supported for TensorRT",
        name="profile",
    ),
    Case(
        "TRI024",
        python(WARM % "dims: [ -1 ] zero_data: true"),
        python(WARM % "dims: [ 4 ] zero_data: true"),
        "all variable-size dimensions are specified",
        name="dims",
    ),
    Case("TRI024", python(WARM % "dims: [ 4 ]"), OK, "to have input_data_type set", name="no-data"),
    Case(
        "TRI024",
        python(WARM % 'dims: [ 4 ] input_data_file: "x.bin"'),
        python(WARM % 'dims: [ 4 ] input_data_file: "x.bin"') | {"@m/warmup/x.bin": "0123456789abcdef"},
        "x.bin",
        name="file",
    ),
    Case(
        "TRI024",
        python(WARM % "dims: [ 5 ] zero_data: true"),
        python(WARM % "dims: [ 4 ] random_data: true"),
        "unexpected shape for input",
        name="shape",
    ),
    Case(
        "TRI024",
        python(
            WARM.replace("value { data_type: TYPE_FP32", "value { data_type: TYPE_INT32")
            % "dims: [ 4 ] zero_data: true"
        ),
        OK,
        "data-type is 'INT32'",
        name="type",
    ),
    Case(
        "TRI024",
        python(WARM.replace('key: "x"', 'key: "z"') % "dims: [ 4 ] zero_data: true"),
        OK,
        "missing required input",
        name="input",
    ),
    Case(
        "TRI024",
        python(WARM.replace("batch_size: 1", "batch_size: 64") % "dims: [ 4 ] zero_data: true"),
        OK,
        "max allowed is 8",
        name="batch",
    ),
    Case(
        "TRI028",
        python(
            BATCHES + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "true" } }\n'
        ),
        python(BATCHES + 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }\n'),
        "FORCE_CPU_ONLY_INPUT_TENSORS",
    ),
    Case(
        "TRI030",
        python(DYNAMIC % "preferred_batch_size: [ 4, 16 ]"),
        python(DYNAMIC % "preferred_batch_size: [ 4, 8 ]"),
        "must be <= max batch size",
        6,
        name="above",
    ),
    Case("TRI030", python(DYNAMIC % "preferred_batch_size: [ 0 ]"), OK, "must be positive", name="zero"),
    Case(
        "TRI030",
        python(
            SEQUENCE.replace(
                "direct { }", "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 16 ] }"
            )
            % ""
        ),
        python(
            SEQUENCE.replace(
                "direct { }", "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 8 ] }"
            )
            % ""
        ),
        "must be <= max batch",
        name="oldest",
    ),
    Case(
        "TRI031",
        python(DYNAMIC % "priority_levels: 2 default_priority_level: 3"),
        python(DYNAMIC % "priority_levels: 2 default_priority_level: 2"),
        "default priority level must be in range",
        name="default",
    ),
    Case(
        "TRI031",
        python(
            DYNAMIC % "priority_levels: 2 default_priority_level: 1 "
            "priority_queue_policy { key: 3 value { max_queue_size: 4 } }"
        ),
        python(
            DYNAMIC % "priority_levels: 2 default_priority_level: 1 "
            "priority_queue_policy { key: 2 value { max_queue_size: 4 } }"
        ),
        "must have priority level in range",
        name="policy",
    ),
    Case(
        "TRI032",
        python(DYNAMIC % "preserve_ordering: true priority_levels: 2 default_priority_level: 1"),
        python(DYNAMIC % "preserve_ordering: true"),
        "Only one priority level is allowed",
        name="levels",
    ),
    Case(
        "TRI032",
        python(
            DYNAMIC % "preserve_ordering: true "
            "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 100 }"
        ),
        OK,
        "can not have DELAY",
        name="delay",
    ),
    Case(
        "TRI040",
        python(SEQUENCE % f"control_input [ {CONTROL % PAIR}, {CONTROL % PAIR} ]"),
        python(SEQUENCE % f"control_input [ {CONTROL % PAIR} ]"),
        "is specified for multiple control kinds",
        name="twice",
    ),
    Case(
        "TRI040",
        python(SEQUENCE % f"control_input [ {CONTROL % ''} ]"),
        OK,
        "must specify either 'int32_false_true'",
        name="no-values",
    ),
    Case(
        "TRI040",
        python(SEQUENCE % f"control_input [ {CONTROL % 'int32_false_true: [ 1 ]'} ]"),
        OK,
        "must have exactly 2 entries",
        name="one-value",
    ),
    Case(
        "TRI040",
        python(SEQUENCE % (CORRELATION % "FP32")),
        python(SEQUENCE % (CORRELATION % "UINT64")),
        "unexpected data type for control",
        name="correlation",
    ),
    Case(
        "TRI041",
        python(SEQUENCE.replace("direct { }", "direct { minimum_slot_utilization: 1.5 }") % ""),
        python(SEQUENCE.replace("direct { }", "direct { minimum_slot_utilization: 0.5 }") % ""),
        "minimum slot utilization must be in range",
    ),
    Case(
        "TRI044",
        python(SEQUENCE % (STATE % "dims: [ -1 ] zero_data: true")),
        python(SEQUENCE % (STATE % "dims: [ 1 ] zero_data: true")),
        "contains variable dimensions",
        name="dims",
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
        "TRI050",
        pipeline(STEP_1, STEP_2.replace('model_name: "@b"', "")),
        pipeline(),
        "must specify 'model_name'",
        name="model",
    ),
    Case(
        "TRI050",
        pipeline(STEP_1, STEP_2.replace('output_map { key: "y" value: "y" }', "")),
        pipeline(),
        "must specify 'output_map'",
        name="output-map",
    ),
    Case("TRI051", pipeline(STEP_1.replace("@a", "@gone"), STEP_2), pipeline(), "not available"),
    Case(
        "TRI052",
        pipeline(STEP_1.replace('key: "x"', 'key: "z"'), STEP_2),
        pipeline(),
        "non-existing input",
        name="input",
    ),
    Case(
        "TRI052",
        pipeline(STEP_1, STEP_2.replace('key: "y"', 'key: "z"')),
        pipeline(),
        "non-existing output",
        name="output",
    ),
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
        "TRI056",
        pipeline(head=ENSEMBLE + 'input [ { name: "w" data_type: TYPE_FP32 dims: [ 4 ] } ]'),
        pipeline(),
        "is not used",
    ),
    Case(
        "TRI057",
        pipeline(STEP_1, STEP_2.replace('value: "middle"', 'value: "other"')),
        pipeline(),
        "is not written",
        name="read",
    ),
    Case(
        "TRI057",
        pipeline(head=ENSEMBLE + 'output [ { name: "w" data_type: TYPE_FP32 dims: [ 4 ] } ]'),
        pipeline(),
        "is not used",
        name="output",
    ),
    Case(
        "TRI058",
        pipeline(STEP_1, STEP_2, STEP_2.replace('value: "y"', 'value: "spare"')),
        pipeline(),
        "is unused in ensemble",
    ),
    Case("TRI059", pipeline(STEP_1, STEP_2, STEP_2), pipeline(), "can appear in an output map only once"),
    Case(
        "TRI060",
        pipeline(STEP_1, STEP_2.replace("@b", "@m")),
        pipeline(),
        "circular dependency",
    ),
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
    Case(
        "TRI063",
        pipeline(head=ENSEMBLE + CPU),
        pipeline(),
        "instance group should not be specified",
        name="instances",
    ),
    Case(
        "TRI063",
        pipeline(head=ENSEMBLE + "optimization { eager_batching: true }"),
        pipeline(),
        "optimization should not be specified",
        name="optimization",
    ),
    Case(
        "TRI064",
        pipeline(STEP_1.replace("-1", "2"), STEP_2),
        pipeline(STEP_1.replace("-1", "1"), STEP_2),
        "whose required version 2 is not loaded",
    ),
    Case("TRI110", python(BATCHES, EXECUTE + "    def (\n"), OK, "SyntaxError", 8),
    Case("TRI111", python(BATCHES, EXECUTE.replace("TritonPythonModel", "Model")), OK, "TritonPythonModel"),
)
