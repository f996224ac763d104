"""Repositories that the server does not load, each with what it says."""

from __future__ import annotations

from tests.check.cases.base import (
    BATCHES,
    CPU,
    DECOUPLED,
    ENSEMBLE,
    EXECUTE,
    OK,
    SENDS,
    SEQUENCE,
    STEP_1,
    TENSORS,
    WARM,
    Case,
    changed,
    pipeline,
    python,
    read_cases,
)

LABELS = python(changed('{ name: "y" => { label_filename: "labels.txt" name: "y"', BATCHES))
WARMED = python(WARM % 'dims: [ 4 ] input_data_file: "x.bin"')
STATE = python(
    SEQUENCE % 'state [ { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [ 1 ] '
    'initial_state: { name: "i" data_type: TYPE_FP32 dims: [ 1 ] data_file: "zero" } } ]'
)
CACHED = python(DECOUPLED + "response_cache { enable: true }\n", SENDS)
UNREAD = "failed to read text proto"
NO_CACHE = "Response Cache does not currently support"
# Two results of one decoupled model go into one step.
JOINED = STEP_1.replace("@a", "@d")
JOINED += JOINED.replace("middle", "second")
JOINED += (
    'step { model_name: "@j" model_version: -1 input_map { key: "x" value: "middle" } '
    'input_map { key: "w" value: "second" } output_map { key: "y" value: "y" } }'
)
JOINS = 'backend: "python"\n' + CPU + TENSORS + 'input [ { name: "w" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'

REFUSED = (
    *read_cases("refused.txt"),
    # As it is copied from a web page.
    Case(
        "TRI001",
        python(BATCHES.replace("max_batch_size: ", "max_batch_size:\u00a0")),
        OK,
        UNREAD,
        2,
        name="blank",
    ),
    Case("TRI001", python(BATCHES + "# \0\n"), OK, UNREAD, 6, name="nul"),
    Case(
        "TRI011",
        {"@m/config.pbtxt": TENSORS, "@m/1/weights.bin": ""},
        {"@m/config.pbtxt": TENSORS, "@m/1/model.py": EXECUTE},
        "Could not determine backend",
        name="nothing",
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
        {"@m/config.pbtxt": BATCHES, "@m/01/model.py": EXECUTE},
        OK,
        "at least one version must be available",
        name="leading-zero",
    ),
    Case("TRI021", LABELS, LABELS | {"@m/labels.txt": "cat\ndog\n"}, "labels.txt"),
    Case("TRI022", CACHED, python(DECOUPLED, SENDS), NO_CACHE, name="decoupled"),
    Case("TRI024", WARMED, WARMED | {"@m/warmup/x.bin": "0123456789abcdef"}, "x.bin", name="file"),
    Case("TRI044", STATE, STATE | {"@m/initial_state/zero": "0000"}, "initial_state/zero", name="file"),
    Case("TRI050", pipeline(" "), pipeline(), "must specify 'step'", name="none"),
    Case(
        "TRI062",
        {
            "@m/config.pbtxt": f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{\n{JOINED}}}\n',
            "@m/1/.gitkeep": "",
            **python(DECOUPLED, SENDS, "d"),
            **python(JOINS, name="j"),
        },
        pipeline(),
        "originated from different decoupled",
    ),
)
