"""Goes through the usual checklist for low latency and shows where a repository does what it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trimodal.check.repository import Config
from trimodal.repository import Model

# open: a repository cannot show it
State = Literal["done", "missing", "open"]
_LOW = ("int8", "int4", "fp8", "u8", "awq", "gptq", "nf4", "w8a8", "w4a16")
_OFF = ("", "0", "false", "none", "off", "no")
_COMPILED = ("tensorrt", "openvino", "onnxruntime", "torch_aoti")
_PREFIX = ("enable_prefix_caching", "enable_kv_cache_reuse")
_SPECULATION = ("speculation", "speculative_config", "speculative_model", "medusa_choices", "lookahead")


@dataclass(frozen=True)
class Item:
    """One line of the checklist; `evidence`: what was found and where, or what to do."""

    name: str
    state: State
    evidence: tuple[str, ...]


def checklist(models: Mapping[str, Config]) -> list[Item]:
    """The items for one profile's models."""
    configs = [config for config in models.values() if not config.is_ensemble]
    return [
        _item(
            "responses are streamed",
            _streaming(configs),
            "no model is decoupled: answers come when they are whole",
        ),
        _item("models are quantised", _quantised(configs), "no engine of 8 bits or fewer is named"),
        _item("prefix caching", _set(configs, _PREFIX), f"no model sets {' or '.join(_PREFIX)}"),
        _item("batching on the server", _batching(configs), "no model has dynamic or sequence batching"),
        _item("models are warmed up", _warm(configs), "no model has model_warmup: first requests pay for it"),
        _item(
            "speculative decoding",
            _set(configs, _SPECULATION),
            "off: worth a try where few streams run at once",
        ),
        _item("compiled networks", _compiled(configs), "no model runs on TensorRT, OpenVINO or ONNX Runtime"),
        Item(
            "connections are kept",
            "open",
            ("clients decide: one gRPC channel or HTTP pool for all requests",),
        ),
        Item("measured", "open", ("trimodal bench measures, trimodal regress compares with the last time",)),
        Item("close to the users", "open", ("the network's part shows in a bench from where they are",)),
    ]


def _item(name: str, evidence: Iterator[str], otherwise: str) -> Item:
    found = tuple(evidence)
    return Item(name, "done", found) if found else Item(name, "missing", (otherwise,))


def _at(config: Config, text: str, *path: str | int) -> str:
    return f"{config.relative_file}:{config.root.find(path).position.line}: {text}"


def _of(config: Config, text: str, parameter: str) -> str:
    return _at(config, text, *config.parameter_path(parameter))


def _streaming(configs: list[Config]) -> Iterator[str]:
    for config in configs:
        if config.message.model_transaction_policy.decoupled:
            yield _at(config, "decoupled", "model_transaction_policy", "decoupled")


def _quantised(configs: list[Config]) -> Iterator[str]:
    for config in configs:
        model = Model(config.model, config.directory, config.file, config.message)
        named = model.artefact if config.versions else ""
        precision = (model.precision() if named else "").lower()
        if precision in _LOW or any(low in named.lower() for low in _LOW):
            path = config.parameter_path("artefact") or ("default_model_filename",)
            yield _at(config, named, *path)
        for key in ("quantization", "kv_cache_precision", "kv_cache_dtype"):
            value = _values(config).get(key, "")
            if any(low in value.lower() for low in _LOW):
                yield _of(config, f"{key} {value}", key)


def _values(config: Config) -> dict[str, str]:
    """Parameters, and the engine arguments that vLLM's backend reads beside the model."""
    found = config.parameters
    for folder in config.loaded.values():
        try:
            given = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if config.backend == "vllm" and isinstance(given, dict):
            found |= {
                key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
            }
    return found


def _set(configs: list[Config], names: tuple[str, ...]) -> Iterator[str]:
    for config in configs:
        for name, value in _values(config).items():
            if name in names and value.lower() not in _OFF and "${" not in value:
                yield _of(config, f"{name} {value}", name)


def _batching(configs: list[Config]) -> Iterator[str]:
    for config in configs:
        for name in ("dynamic_batching", "sequence_batching"):
            if config.message.HasField(name) and config.message.max_batch_size > 1:
                yield _at(config, name, name)
        for name in ("max_num_seqs", "max_batch_size"):
            if config.message.model_transaction_policy.decoupled and name in config.parameters:
                yield _of(config, f"{name}: the engine batches token by token", name)


def _warm(configs: list[Config]) -> Iterator[str]:
    for config in configs:
        message = config.message
        if message.model_warmup:
            yield _at(config, "model_warmup", "model_warmup")
        elif config.backend == "tensorrt" and message.optimization.cuda.graphs:
            yield _at(config, "CUDA graphs: each size is run when it is captured", "optimization")
        elif sizes := config.parameters.get("warm_up_batch_sizes"):
            yield _of(config, f"warm_up_batch_sizes {sizes}", "warm_up_batch_sizes")


def _compiled(configs: list[Config]) -> Iterator[str]:
    for config in configs:
        engine = config.parameters.get("engine", "")
        if config.backend in _COMPILED:
            yield _at(config, config.backend, "backend" if config.message.backend else "platform")
        elif engine in _COMPILED:
            yield _of(config, f"engine {engine}", "engine")
