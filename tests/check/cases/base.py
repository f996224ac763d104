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


OK = python(BATCHES)
DYNAMIC = BATCHES + "dynamic_batching { %s }\n"
DECOUPLED = 'backend: "python"\n' + CPU + TENSORS + "model_transaction_policy { decoupled: true }\n"
WARM = (
    BATCHES
    + 'model_warmup [ { name: "s" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 %s } } } ]\n'
)
PLAN = 'platform: "tensorrt_plan"\nmax_batch_size: 8\n' + TENSORS


def changed(snippet: str, text: str) -> str:
    """`old => new` of a text, once; several between `&&`. `\\n` begins a line."""
    for change in snippet.replace("\\n", "\n").split(" && "):
        old, _, new = change.partition(" =>")
        text = text.replace(old, new.removeprefix(" "), 1)
    return text


# What a snippet of a table is put into.
KINDS: Mapping[str, Callable[[str], Files]] = {
    "added": lambda snippet: python(f"{BATCHES}{snippet}\n"),
    "changed": lambda snippet: python(changed(snippet, BATCHES)),
    "tensor": lambda snippet: python(changed(f"dims: [ 4 ] => {snippet}", BATCHES)),
    "dynamic": lambda snippet: python(DYNAMIC % snippet),
    "sequence": lambda snippet: python(SEQUENCE % snippet),
    "warm-up": lambda snippet: python(WARM % snippet),
    "code": lambda snippet: python(BATCHES, changed(snippet, EXECUTE)),
    "profile": lambda snippet: OK | {"@m/configs/gpu.pbtxt": changed(snippet, BATCHES)},
    "head": lambda snippet: pipeline(head=ENSEMBLE + snippet),
    "steps": lambda snippet: pipeline(STEP_1, STEP_2, snippet),
    "step-1": lambda snippet: pipeline(changed(snippet, STEP_1), STEP_2),
    "step-2": lambda snippet: pipeline(STEP_1, changed(snippet, STEP_2)),
    "step-a": lambda snippet: pipeline(a=changed(snippet, BATCHES)),
    "step-b": lambda snippet: pipeline(b=changed(snippet, BATCHES)),
}
HEAD = re.compile(r"(TRI\d+)-?(\S*) ([\w-]+):?(\d*) ?(.*)")


def read_cases(table: str) -> Iterator[Case]:
    """The cases of a table beside this file."""
    text = re.sub(r"^#.*\n", "", Path(__file__).with_name(table).read_text(), flags=re.MULTILINE)
    for row in re.split(r"\n(?=TRI)", text.strip()):
        head, broken, *clean = row.split("\n")
        named, _, reply = head.partition(" | ")
        rule, name, kind, line, on = HEAD.fullmatch(named).groups()  # type: ignore[union-attr]
        bare = pipeline() if kind.startswith(("head", "step")) else OK
        right = KINDS[kind](clean[0][2:]) if clean else bare
        target = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", on)}
        yield Case(rule, KINDS[kind](broken[2:]), right, reply, int(line or 0), target, name)
