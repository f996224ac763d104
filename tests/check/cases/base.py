"""Small repositories: for each rule one that breaks it and the same one repaired.

`@` in paths and texts becomes a prefix of the case, so that all fit into one repository of one server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Files = Mapping[str, str]

EXECUTE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.get_input_tensor_by_name(r, "x")]) for r in requests]
"""
SENDS = """
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([]))
            sender.send(flags=FINAL)
"""
TENSORS = """input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
CPU = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
BATCHES = 'backend: "python"\nmax_batch_size: 8\n' + CPU + TENSORS
SEQUENCE = BATCHES + "sequence_batching { max_sequence_idle_microseconds: 5000000 direct { } %s }\n"
CONTROL = '{ name: "START" control [ { kind: CONTROL_SEQUENCE_START %s } ] }'
PAIR = "int32_false_true: [ 0, 1 ]"
# Two steps, x → middle → y.
STEP = (
    'step { model_name: "%s" model_version: -1 '
    'input_map { key: "x" value: "%s" } output_map { key: "y" value: "%s" } }'
)
STEP_1 = STEP % ("@a", "x", "middle")
STEP_2 = STEP % ("@b", "middle", "y")
ENSEMBLE = 'platform: "ensemble"\nmax_batch_size: 8\n' + TENSORS


def python(config: str, code: str = EXECUTE, name: str = "m") -> dict[str, str]:
    return {f"@{name}/config.pbtxt": config, f"@{name}/1/model.py": code}


def pipeline(*steps: str, head: str = ENSEMBLE, a: str = BATCHES, b: str = BATCHES) -> dict[str, str]:
    """An ensemble @m of the models @a and @b."""
    body = "\n".join(steps or (STEP_1, STEP_2))
    files = {"@m/1/.gitkeep": ""}
    for name, config in (("a", a), ("b", b)):
        if config is BATCHES:  # one for all cases: each costs a process of the server's
            body = body.replace(f'"@{name}"', '"shared"')
            files |= {"shared/config.pbtxt": BATCHES, "shared/1/model.py": EXECUTE}
        else:
            files |= python(config, name=name)
    return files | {"@m/config.pbtxt": f"{head}\nensemble_scheduling {{\n{body}\n}}\n"}


@dataclass(frozen=True)
class Case:
    """`reply`: part of what the server says when it refuses @m; empty: it loads it, or cannot here."""

    rule: str
    broken: Files
    clean: Files
    reply: str = ""
    line: int = 0  # of the finding; 0: not looked at
    target: Mapping[str, object] = field(default_factory=dict)
    name: str = ""

    @property
    def id(self) -> str:
        return f"{self.rule}{'-' if self.name else ''}{self.name}"

    @property
    def prefix(self) -> str:
        return self.id.lower().replace("-", "_") + "_"

    def write(self, root: Path, *, broken: bool, prefix: str = "") -> None:
        for path, text in (self.broken if broken else self.clean).items():
            file = root / path.replace("@", prefix)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("@", prefix))


def tensor(text: str) -> str:
    return BATCHES.replace("dims: [ 4 ] } ]\noutput", f"{text} }} ]\noutput")


OK = python(BATCHES)
DYNAMIC = BATCHES + "dynamic_batching { %s }\n"
DECOUPLED = 'backend: "python"\n' + CPU + TENSORS + "model_transaction_policy { decoupled: true }\n"
UNREADABLE = "failed to read text proto"
WARM = (
    BATCHES
    + 'model_warmup [ { name: "s" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 %s } } } ]\n'
)
CORRELATION = (
    'control_input [ { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_%s } ] } ]'
)
STATE = (
    'state [ { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [ 1 ] '
    'initial_state: { name: "i" data_type: TYPE_FP32 %s } } ]'
)
PLAN = 'platform: "tensorrt_plan"\nmax_batch_size: 8\n' + TENSORS
