"""The files of one model for several profiles: clients must not see a difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tritonclient.grpc import model_config_pb2

from trimodal.check.findings import Finding
from trimodal.check.repository import DEFAULT, Config


def check_profiles(files: Mapping[str, Config]) -> Iterator[Finding]:
    """`files`: profile → the model's own file for it. Each is held against config.pbtxt, else the first."""
    readable = {profile: config for profile, config in files.items() if config.message is not None}
    if len(readable) < 2:
        return
    first = DEFAULT if DEFAULT in readable else next(iter(readable))
    base = readable[first]
    for profile, config in readable.items():
        if profile != first:
            yield from _tensors(base, config)
            yield from _ways(base, config)


def _tensors(base: Config, config: Config) -> Iterator[Finding]:
    for kind in ("input", "output"):
        theirs = {tensor.name: _shown(tensor) for tensor in getattr(base.message, kind)}
        ours = {tensor.name: _shown(tensor) for tensor in getattr(config.message, kind)}
        if not theirs or not ours:
            continue  # read from the model's file
        for index, tensor in enumerate(getattr(config.message, kind)):
            if tensor.name not in theirs:
                yield config.finding(
                    "TRI070", f"{kind} {tensor.name} is not in {base.relative_file}", kind, index
                )
            elif ours[tensor.name] != theirs[tensor.name]:
                was = f"in {base.relative_file} {theirs[tensor.name]}"
                sentence = f"{kind} {tensor.name} is {ours[tensor.name]}, {was}"
                yield config.finding("TRI070", sentence, kind, index)
        for name in theirs.keys() - ours.keys():
            yield config.finding("TRI070", f"{kind} {name} of {base.relative_file} is missing")


def _shown(tensor: Any) -> str:
    optional = " optional" if getattr(tensor, "optional", False) else ""
    return f"{model_config_pb2.DataType.Name(tensor.data_type)} {list(tensor.dims)}{optional}"


def _ways(base: Config, config: Config) -> Iterator[Finding]:
    for (name, field, has), (_, _, had) in zip(_way(config), _way(base), strict=True):
        if has != had:
            ours, theirs = ("has", "does not") if has else ("has no", "does")
            yield config.finding("TRI071", f"this file {ours} {name}, {base.relative_file} {theirs}", field)


def _way(config: Config) -> Iterator[tuple[str, str, bool]]:
    """How clients must speak with the model: what, its field, and whether the file has it."""
    message = config.message
    yield "decoupled responses", "model_transaction_policy", message.model_transaction_policy.decoupled
    yield "sequences", "sequence_batching", message.HasField("sequence_batching")
    yield "a batch dimension", "max_batch_size", message.max_batch_size > 0
