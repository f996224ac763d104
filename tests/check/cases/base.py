"""Small repositories: for each rule one that breaks it and the same one repaired.

`@` in paths and texts becomes a prefix of the case, so that all fit into one repository of one server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
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


def _changed(snippet: str, text: str) -> str:
    """`old => new` of a text, once."""
    old, _, new = snippet.partition(" =>")
    return text.replace(old, new.strip(), 1)


# What a snippet of refused.txt is put into.
KINDS: Mapping[str, Callable[[str], Files]] = {
    "added": lambda snippet: python(f"{BATCHES}{snippet}\n"),
    "changed": lambda snippet: python(_changed(snippet, BATCHES)),
    "tensor": lambda snippet: python(tensor(snippet)),
    "dynamic": lambda snippet: python(DYNAMIC % snippet),
    "sequence": lambda snippet: python(SEQUENCE % snippet),
    "warm-up": lambda snippet: python(WARM % snippet),
    "head": lambda snippet: pipeline(head=ENSEMBLE + snippet),
    "step-1": lambda snippet: pipeline(_changed(snippet, STEP_1), STEP_2),
    "step-2": lambda snippet: pipeline(STEP_1, _changed(snippet, STEP_2)),
}


def read_cases(file: Path) -> Iterator[Case]:
    """The cases of a file as refused.txt."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE)
    for row in re.split(r"\n(?=TRI)", text.strip()):
        head, broken, *clean = row.split("\n")
        named, _, reply = head.partition(" | ")
        name, kind, line = re.fullmatch(r"(\S+) ([\w-]+)(?::(\d+))?", named).groups()  # type: ignore[union-attr]
        rule, _, short = name.partition("-")
        bare = pipeline() if kind.startswith(("head", "step")) else OK
        make = KINDS[kind]
        right = make(clean[0][2:]) if clean else bare
        yield Case(rule, make(broken[2:]), right, reply, int(line or 0), name=short)
