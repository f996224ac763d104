"""The graph of an ensemble: what its steps read and write, and whether the models fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tritonclient.grpc import model_config_pb2

from trimodal.check.findings import Finding, Target
from trimodal.check.repository import Config
from trimodal.check.version import shown

_OVERFLOW_FIXED = (26, 3)
_MOVED = ("instance_group", "optimization", "model_warmup")


@dataclass
class _Tensor:
    """One tensor of the graph as one side sees it: dims without, `full` with the batch."""

    owner: str
    data_type: int
    dims: tuple[int, ...]
    full: tuple[int, ...]


@dataclass
class _Graph:
    seen: dict[str, _Tensor] = field(default_factory=dict)
    writers: dict[str, int] = field(default_factory=dict)  # tensor → step; -1: the ensemble's inputs
    readers: dict[str, list[int]] = field(default_factory=dict)


def check_ensemble(config: Config, models: Mapping[str, Config], target: Target) -> Iterator[Finding]:
    """`models`: all that the profile reads, by name; those that cannot be read are not in it."""
    message = config.message
    if not message.HasField("ensemble_scheduling"):
        return
    for name in _MOVED:
        if message.HasField("optimization") if name == "optimization" else len(getattr(message, name)):
            yield config.finding("TRI063", f"{name} on an ensemble", name)
    if not message.ensemble_scheduling.step:
        yield config.finding("TRI050", "ensemble_scheduling has no step", "ensemble_scheduling")
    graph = _Graph(writers={tensor.name: -1 for tensor in message.input})
    for tensor in (*message.input, *message.output):
        dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
        graph.seen.setdefault(tensor.name, _tensor(config.model, message, tensor.data_type, dims))
    for index, step in enumerate(message.ensemble_scheduling.step):
        yield from _step(config, index, step, graph)
    yield from _flow(config, graph)
    for index, step in enumerate(message.ensemble_scheduling.step):
        if model := models.get(step.model_name):
            yield from _step_model(config, index, step, model, graph, target)
    yield from _decoupled(config, models, graph)


def _at(index: int, *more: str | int) -> tuple[str | int, ...]:
    return ("ensemble_scheduling", "step", index, *more)


def _step(config: Config, index: int, step: Any, graph: _Graph) -> Iterator[Finding]:
    missing = [name for name in ("model_name", "input_map", "output_map") if not getattr(step, name)]
    if missing:
        yield config.finding("TRI050", f"step {index + 1} has no {' and no '.join(missing)}", *_at(index))
    for tensor in step.output_map.values():
        if graph.writers.get(tensor, -1) >= 0:
            sentence = f"step {index + 1} writes {tensor}, as step {graph.writers[tensor] + 1} does"
            yield config.finding("TRI059", sentence, *_at(index, "output_map"))
        graph.writers[tensor] = index
    for tensor in step.input_map.values():
        graph.readers.setdefault(tensor, []).append(index)


def _flow(config: Config, graph: _Graph) -> Iterator[Finding]:
    message = config.message
    outputs = {tensor.name for tensor in message.output}
    for index, tensor in enumerate(message.input):
        if tensor.name and tensor.name not in graph.readers and message.ensemble_scheduling.step:
            yield config.finding("TRI056", f"no step reads the input {tensor.name}", "input", index)
    steps = message.ensemble_scheduling.step
    ready = {tensor.name for tensor in message.input}
    left = set(range(len(steps))) - set(_in_order(steps, ready))
    reported: set[str] = set()
    for index in sorted(left):
        for tensor in sorted(set(steps[index].input_map.values()) - ready - reported):
            reported.add(tensor)
            if tensor not in graph.writers:
                sentence = f"step {index + 1} reads {tensor}, which no step writes"
            else:
                sentence = f"step {index + 1} reads {tensor}, which is written only after it"
            yield config.finding("TRI057", sentence, *_at(index, "input_map"))
    for index, tensor in enumerate(message.output):
        if tensor.name and tensor.name not in graph.writers and steps:
            yield config.finding("TRI057", f"no step writes the output {tensor.name}", "output", index)
    for tensor, index in graph.writers.items():
        if index >= 0 and tensor not in outputs and tensor not in graph.readers:
            sentence = f"step {index + 1} writes {tensor}, which no step reads and is no output"
            yield config.finding("TRI058", sentence, *_at(index, "output_map"))


def _in_order(steps: Sequence[Any], ready: set[str]) -> Iterator[int]:
    """Steps as their inputs get ready, adding their outputs to `ready`; the others are left out."""
    left = list(range(len(steps)))
    while now := [index for index in left if set(steps[index].input_map.values()) <= ready]:
        yield from now
        ready |= {name for index in now for name in steps[index].output_map.values()}
        left = [index for index in left if index not in now]


def _tensor(owner: str, message: Any, data_type: int, dims: Any) -> _Tensor:
    whole = tuple(dims)
    return _Tensor(owner, data_type, whole, (-1, *whole) if message.max_batch_size > 0 else whole)


def _step_model(
    config: Config, index: int, step: Any, model: Config, graph: _Graph, target: Target
) -> Iterator[Finding]:
    message, wanted = model.message, config.message.max_batch_size
    if 0 < message.max_batch_size < wanted:
        sentence = f"{model.model} takes batches of {message.max_batch_size}, the ensemble of {wanted}"
        yield config.finding("TRI061", sentence, *_at(index, "model_name"))
    if step.model_version > 0 and model.versions and step.model_version not in model.loaded:
        sentence = f"step {index + 1} wants version {step.model_version} of {model.model}"
        yield config.finding("TRI064", sentence, *_at(index, "model_version"))
    bound = message.dynamic_batching.default_queue_policy.max_queue_size
    if bound and target.release < _OVERFLOW_FIXED:
        sentence = (
            f"{model.model} is a step of {config.model}: when its queue of {bound} is full, requests to "
            f"{config.model} may never end (checked for Triton {shown(target.release)})"
        )
        yield model.finding("TRI065", sentence, "dynamic_batching", "default_queue_policy", "max_queue_size")
    if message.model_transaction_policy.decoupled:
        sentence = f"step {index + 1}, {model.model}, is decoupled and runs on after a client has cancelled"
        yield config.finding("TRI066", sentence, *_at(index, "model_name"))
    yield from _mapping(config, index, step, model, graph)


def _mapping(config: Config, index: int, step: Any, model: Config, graph: _Graph) -> Iterator[Finding]:
    message = model.message
    for kind, mapped, tensors in (
        ("input", step.input_map, message.input),
        ("output", step.output_map, message.output),
    ):
        if not tensors and model.completes(kind):
            continue  # the server reads them from the model's file
        known = {tensor.name: tensor for tensor in tensors}
        for key, name in mapped.items():
            if key not in known:
                if not model.completes(kind):
                    sentence = f"{model.model} has no {kind} {key}"
                    yield config.finding("TRI052", sentence, *_at(index, f"{kind}_map"))
                continue
            tensor = known[key]
            yield from _agree(config, index, kind, name, model, tensor, graph)
        if kind == "input":
            for key, tensor in known.items():
                if key not in mapped and not tensor.optional:
                    sentence = f"the input {key} of {model.model} is not mapped"
                    yield config.finding("TRI053", sentence, *_at(index, "input_map"))


def _agree(
    config: Config, index: int, kind: str, name: str, model: Config, tensor: Any, graph: _Graph
) -> Iterator[Finding]:
    if not (tensor.data_type and tensor.dims):
        return
    mine = _tensor(model.model, model.message, tensor.data_type, tensor.dims)
    other = graph.seen.setdefault(name, mine)
    if not (other.data_type and other.dims):
        return
    if mine.data_type != other.data_type:
        types = [model_config_pb2.DataType.Name(one.data_type) for one in (mine, other)]
        sentence = f"{name} is {types[0]} in {mine.owner} and {types[1]} in {other.owner}"
        yield config.finding("TRI054", sentence, *_at(index, f"{kind}_map"))
    elif not (_alike(mine.dims, other.dims) or _alike(mine.full, other.full)):
        shapes = f"{list(mine.dims)} in {mine.owner} and {list(other.dims)} in {other.owner}"
        yield config.finding("TRI055", f"{name} is {shapes}", *_at(index, f"{kind}_map"))


def _alike(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _decoupled(config: Config, models: Mapping[str, Config], graph: _Graph) -> Iterator[Finding]:
    """Each tensor's last decoupled step; a step whose inputs have different ones cannot pair them."""
    steps = config.message.ensemble_scheduling.step
    source: dict[str, int] = {tensor.name: 0 for tensor in config.message.input}
    for index in _in_order(steps, set(source)):
        step = steps[index]
        sources = {source[name] for name in step.input_map.values()}
        if len(sources) > 1:
            sentence = f"step {index + 1}, {step.model_name}, joins responses of different decoupled models"
            yield config.finding("TRI062", sentence, *_at(index, "input_map"))
        model = models.get(step.model_name)
        own = model is not None and model.message.model_transaction_policy.decoupled
        if model is not None and not own and max(sources, default=0) > 0:
            before = steps[max(sources) - 1].model_name
            sentence = f"step {index + 1}, {step.model_name}, gets each response of {before}, not the whole"
            yield config.finding("TRI067", sentence, *_at(index, "model_name"))
        for name in step.output_map.values():
            source[name] = index + 1 if own else max(sources, default=0)
    outputs = {source[tensor.name] for tensor in config.message.output if tensor.name in source}
    if len(outputs) > 1:
        sentence = "the outputs come from different decoupled models, which answer at different times"
        yield config.finding("TRI062", sentence, "output")


def check_members(models: Mapping[str, Config], names: frozenset[str]) -> Iterator[Finding]:
    """Steps that no model of the repository is, and ensembles in a circle. `names`: all folders."""
    for config in models.values():
        for index, step in enumerate(config.message.ensemble_scheduling.step):
            if step.model_name and step.model_name not in names and not step.model_namespace:
                sentence = f"step {index + 1} is {step.model_name}, which is not in the repository"
                yield config.finding("TRI051", sentence, *_at(index, "model_name"))
    for config in models.values():
        for index, step in enumerate(config.message.ensemble_scheduling.step):
            if path := _path(step.model_name, config.model, models, ()):
                circle = " → ".join((config.model, *path))
                yield config.finding(
                    "TRI060", f"the ensemble contains itself: {circle}", *_at(index, "model_name")
                )


def _path(start: str, end: str, models: Mapping[str, Config], before: tuple[str, ...]) -> tuple[str, ...]:
    """Models from `start` to `end`, both included; empty: there is no way."""
    if start == end:
        return (*before, start)
    if start in before or start not in models:
        return ()
    for step in models[start].message.ensemble_scheduling.step:
        if found := _path(step.model_name, end, models, (*before, start)):
            return found
    return ()
