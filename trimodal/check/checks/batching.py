"""Dynamic batching and sequences of one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tritonclient.grpc import model_config_pb2

from trimodal.check.findings import Finding, Target
from trimodal.check.repository import Config
from trimodal.check.version import shown

_CONTROL = model_config_pb2.ModelSequenceBatching.Control
_DELAY = model_config_pb2.ModelQueuePolicy.DELAY
_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_CACHE_FIXED = (25, 9)
_IDLE_DEFAULT_US = 1_000_000  # of the server, where the file has none


def check_batching(config: Config, target: Target) -> Iterator[Finding]:
    if config.message.HasField("dynamic_batching"):
        yield from _dynamic(config, target)
    if config.message.HasField("sequence_batching"):
        yield from _sequences(config)


def _dynamic(config: Config, target: Target) -> Iterator[Finding]:
    batching, most = config.message.dynamic_batching, config.message.max_batch_size
    yield from _preferred(config, list(batching.preferred_batch_size), "dynamic_batching")
    yield from _priorities(config)
    # Priorities and a bounded queue are of use without batches.
    if most <= 1 and not batching.priority_levels and not batching.HasField("default_queue_policy"):
        rule = "TRI037" if most == 0 else "TRI033"
        yield config.finding(rule, f"max_batch_size is {most}", "dynamic_batching")
    delay_ms = batching.max_queue_delay_microseconds / 1000
    if target.slo_ms and delay_ms >= target.slo_ms:
        sentence = (
            f"{config.model} may hold a request back for {delay_ms:g} ms, the SLO is {target.slo_ms:g} ms"
        )
        yield config.finding("TRI034", sentence, "dynamic_batching", "max_queue_delay_microseconds")
    yield from _stall(config)
    if config.message.response_cache.enable and target.release < _CACHE_FIXED:
        sentence = f"checked for Triton {shown(target.release)}: each answer out of the cache keeps its slot"
        yield config.finding("TRI036", sentence, "response_cache")


def _preferred(config: Config, sizes: list[int], *path: str) -> Iterator[Finding]:
    most = config.message.max_batch_size
    for index, size in enumerate(sizes):
        if size <= 0:
            yield config.finding(
                "TRI030", f"a preferred batch size is {size}", *path, "preferred_batch_size", index
            )
        elif size > most >= 0:
            sentence = f"a preferred batch size is {size}, max_batch_size is {most}"
            yield config.finding("TRI030", sentence, *path, "preferred_batch_size", index)


def _priorities(config: Config) -> Iterator[Finding]:
    batching = config.message.dynamic_batching
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels:
        if not 1 <= default <= levels:
            sentence = f"default_priority_level is {default}, priority_levels {levels}"
            yield config.finding("TRI031", sentence, "dynamic_batching", "priority_levels")
        for level in sorted(batching.priority_queue_policy):
            if not 1 <= level <= levels:
                sentence = f"priority_queue_policy has level {level}, priority_levels is {levels}"
                yield config.finding("TRI031", sentence, "dynamic_batching", "priority_queue_policy")
    if batching.preserve_ordering:
        at = ("dynamic_batching", "preserve_ordering")
        if levels > 1:
            yield config.finding("TRI032", f"preserve_ordering with {levels} priorities", *at)
        policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
        if any(one.default_timeout_microseconds and one.timeout_action == _DELAY for one in policies):
            yield config.finding("TRI032", "preserve_ordering with timeout_action DELAY", *at)


def _stall(config: Config) -> Iterator[Finding]:
    batching = config.message.dynamic_batching
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    if not any(policy.default_timeout_microseconds for policy in policies):
        return
    groups = config.message.instance_group
    # Without a group the server chooses; one on GPUs has an instance on each.
    if not groups or sum(max(1, group.count) * max(1, len(group.gpus)) for group in groups) > 1:
        return
    # The batcher waits under another lock than the one that the instance's end is told under.
    sentence = "a timeout of the queue on one instance: about one request in 500 waits for 500 ms"
    policy = "default_queue_policy" if policies[0].default_timeout_microseconds else "priority_queue_policy"
    yield config.finding("TRI035", sentence, "dynamic_batching", policy)


def _sequences(config: Config) -> Iterator[Finding]:
    batching = config.message.sequence_batching
    yield from _controls(config)
    yield from _initial_states(config)
    if batching.HasField("oldest"):
        yield from _preferred(
            config, list(batching.oldest.preferred_batch_size), "sequence_batching", "oldest"
        )
    share = batching.direct.minimum_slot_utilization
    if not 0 <= share <= 1:
        at = ("sequence_batching", "direct", "minimum_slot_utilization")
        yield config.finding("TRI041", f"minimum_slot_utilization is {share:g}", *at)
    idle = batching.max_sequence_idle_microseconds
    if idle <= _IDLE_DEFAULT_US and not batching.iterative_sequence:
        shown_idle = "not set, which is 1 s" if idle == 0 else f"{idle / 1e6:g} s"
        sentence = (
            f"max_sequence_idle_microseconds is {shown_idle}: a client that pauses longer loses its sequence"
        )
        yield config.finding("TRI042", sentence, "sequence_batching", "max_sequence_idle_microseconds")


def _initial_states(config: Config) -> Iterator[Finding]:
    for index, state in enumerate(config.message.sequence_batching.state):
        wrong = [sentence for one in state.initial_state for sentence in _initial_state(config, state, one)]
        if len(state.initial_state) > 1:
            wrong.append("is there several times")
        for sentence in wrong:
            sentence = f"initial_state of {state.input_name} {sentence}"
            yield config.finding("TRI044", sentence, "sequence_batching", "state", index)


def _initial_state(config: Config, state: Any, initial: Any) -> Iterator[str]:
    if not initial.name:
        yield "has no name"
    if initial.data_type != state.data_type:
        types = [model_config_pb2.DataType.Name(each.data_type) for each in (initial, state)]
        yield f"has {types[0]}, the state {types[1]}"
    if any(size < 0 for size in initial.dims):
        yield "has dims of -1"
    elif len(initial.dims) != len(state.dims) or any(
        size not in (-1, given) for size, given in zip(state.dims, initial.dims, strict=True)
    ):
        yield f"has dims {list(initial.dims)}, the state {list(state.dims)}"
    if not initial.WhichOneof("state_data"):
        yield "has neither zero_data nor data_file"
    elif initial.data_file and not (config.directory / "initial_state" / initial.data_file).is_file():
        yield f"is read from initial_state/{initial.data_file}, which is missing"


def _controls(config: Config) -> Iterator[Finding]:
    inputs = config.message.sequence_batching.control_input
    for name, count in Counter(one.name for one in inputs).items():
        if not name:
            yield config.finding(
                "TRI040", "a control_input has no name", "sequence_batching", "control_input"
            )
        elif count > 1:
            sentence = f"control_input {name} is there {count} times"
            yield config.finding("TRI040", sentence, "sequence_batching", "control_input")
    kinds = Counter(control.kind for one in inputs for control in one.control)
    for kind, count in kinds.items():
        if count > 1:
            sentence = f"{_CONTROL.Kind.Name(kind)} is there {count} times"
            yield config.finding("TRI040", sentence, "sequence_batching", "control_input")
    for index, one in enumerate(inputs):
        at = ("sequence_batching", "control_input", index)
        for control in one.control:
            name = _CONTROL.Kind.Name(control.kind)
            pairs = {pair: list(getattr(control, pair)) for pair in _PAIRS if len(getattr(control, pair))}
            if control.kind == _CONTROL.CONTROL_SEQUENCE_CORRID:
                yield from _correlation(config, control, pairs, at)
            elif len(pairs) != 1:
                yield config.finding("TRI040", f"{name} has {len(pairs)} pairs of values", *at)
            elif (length := len(next(iter(pairs.values())))) != 2:
                yield config.finding("TRI040", f"{next(iter(pairs))} of {name} has {length} values", *at)


def _correlation(
    config: Config, control: Any, pairs: dict[str, list[object]], at: tuple[str | int, ...]
) -> Iterator[Finding]:
    kind = model_config_pb2.DataType.Name(control.data_type)
    if pairs:
        yield config.finding("TRI040", "CONTROL_SEQUENCE_CORRID takes no pair of values", *at)
    if kind not in _CORRELATION_TYPES:
        yield config.finding("TRI040", f"CONTROL_SEQUENCE_CORRID is {kind}", *at)
    elif kind == "TYPE_STRING" and config.message.max_batch_size > 1:
        sentence = "CONTROL_SEQUENCE_CORRID is TYPE_STRING with batches: requests end in an error"
        yield config.finding("TRI043", sentence, *at)
