"""One model by itself: its name, backend, versions, tensors, instances and warm-up samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from tritonclient.grpc import model_config_pb2

from trimodal.check.findings import Finding, Target
from trimodal.check.repository import PLATFORMS, SOURCES, Config

_GROUP = model_config_pb2.ModelInstanceGroup
_LAST_VERSION = 2**63 - 1  # on a larger one tritonserver (2.51) aborts: "stoll"
# They read what is missing in a tensor from the model's file.
_COMPLETE_TENSORS = ("tensorrt", "onnxruntime", "openvino", "tensorflow")


def check_model(config: Config, target: Target) -> Iterator[Finding]:
    for look in LOOKS:
        yield from look(config)


def _name(config: Config) -> Iterator[Finding]:
    name = config.message.name
    if name and name != config.model:
        yield config.finding("TRI010", f"name is {name}, the folder is {config.model}", "name")


def _backend(config: Config) -> Iterator[Finding]:
    message = config.message
    if config.is_ensemble:
        if message.platform != "ensemble":
            yield config.finding(
                "TRI013", 'ensemble_scheduling without platform: "ensemble"', "ensemble_scheduling"
            )
        elif not message.HasField("ensemble_scheduling"):
            yield config.finding("TRI013", "platform ensemble without ensemble_scheduling", "platform")
        elif message.backend:
            yield config.finding("TRI013", f"an ensemble with backend {message.backend}", "backend")
        return
    expected = PLATFORMS.get(str(message.platform))
    if message.platform and not message.backend and expected is None:
        yield config.finding(
            "TRI011", f"platform {message.platform} is none that the server knows", "platform"
        )
    elif not config.backend and config.versions and "." not in config.model and not _from_agents(config):
        yield config.finding(
            "TRI011", "there is neither backend nor platform, nor a model file that tells it"
        )
    elif message.backend in PLATFORMS.values() and message.platform and expected != message.backend:
        yield config.finding(
            "TRI012", f"backend {message.backend} with platform {message.platform}", "platform"
        )


def _from_agents(config: Config) -> bool:
    """Whether a repository agent brings the model's files when it is loaded."""
    return len(config.message.model_repository_agents.agents) > 0


def _versions(config: Config) -> Iterator[Finding]:
    for number in config.versions:
        if number > _LAST_VERSION:
            sentence = f"the folder {config.model}/{number} is no version: the server ends on such a number"
            yield config.finding("TRI014", sentence, fix=f"name it by a number up to {_LAST_VERSION}")
    if not config.versions and not _from_agents(config):
        yield config.finding("TRI014", f"{config.model} has no version folder (1/, 2/, …)")
    elif config.versions and not config.loaded:
        numbers = ", ".join(map(str, sorted(config.versions)))
        yield config.finding(
            "TRI014",
            f"version_policy takes none of the versions {numbers}",
            "version_policy",
            fix=f"name one of them in version_policy, as specific {{ versions: [ {max(config.versions)} ] }}",
        )


def _batch_size(config: Config) -> Iterator[Finding]:
    if config.message.max_batch_size < 0:
        yield config.finding("TRI015", f"max_batch_size is {config.message.max_batch_size}", "max_batch_size")


def _tensors(config: Config) -> Iterator[Finding]:
    for kind, tensors in (("input", config.message.input), ("output", config.message.output)):
        named = Counter(tensor.name for tensor in tensors if tensor.name)
        for name, count in named.items():
            if count > 1:
                index = [tensor.name for tensor in tensors].index(name)
                yield config.finding("TRI026", f"{kind} {name} is there {count} times", kind, index)
        for index, tensor in enumerate(tensors):
            yield from _tensor(config, kind, index, tensor)


def _tensor(config: Config, kind: str, index: int, tensor: Any) -> Iterator[Finding]:
    shown = f"{kind} {tensor.name}" if tensor.name else f"{kind} {index + 1}"
    missing = [
        field
        for field, there in (
            ("name", tensor.name),
            ("data_type", tensor.data_type),
            ("dims", len(tensor.dims)),
        )
        if not there
    ]
    known = config.backend or config.is_ensemble  # without a backend nobody knows what it completes
    if missing and known and config.backend not in _COMPLETE_TENSORS and not config.completes_in_python:
        yield config.finding("TRI016", f"{shown} has no {' and no '.join(missing)}", kind, index)
    for field, dims in (("dims", tensor.dims), ("reshape", tensor.reshape.shape)):
        for size in dims:
            if size < 1 and size != -1:
                yield config.finding("TRI017", f"{shown} has {field} of {size}", kind, index, field)
    if tensor.HasField("reshape") and not _same_elements(config, tensor):
        shape = f"{list(tensor.dims)} to {list(tensor.reshape.shape)}"
        yield config.finding("TRI018", f"{shown} cannot be reshaped from {shape}", kind, index, "reshape")
    yield from _format(config, kind, index, tensor, shown)


def _same_elements(config: Config, tensor: Any) -> bool:
    dims, shape = list(tensor.dims), list(tensor.reshape.shape)
    if not shape and config.message.max_batch_size == 0:
        return False  # a scalar without a batch dimension would have no size at all
    if any(size == 0 or size < -1 for size in (*dims, *shape)) or not dims:
        return True  # said already
    return _chunks(dims) == _chunks(shape)


def _chunks(dims: list[int]) -> list[int]:
    """Elements between the sizes that vary: [2, 4, -1, 6] → [8, 6]."""
    found: list[list[int]] = [[]]
    for size in dims:
        if size == -1:
            found.append([])
        else:
            found[-1].append(size)
    return [prod(chunk) for chunk in found]


def _format(config: Config, kind: str, index: int, tensor: Any, shown: str) -> Iterator[Finding]:
    if kind == "input" and tensor.format and len(tensor.dims) != 3 and tensor.dims:
        name = model_config_pb2.ModelInput.Format.Name(tensor.format)
        yield config.finding(
            "TRI019", f"{shown} is {name} with {len(tensor.dims)} dims", kind, index, "format"
        )
    if config.backend not in ("tensorrt", "") or config.is_ensemble:
        for field in ("is_shape_tensor", "is_non_linear_format_io"):
            if getattr(tensor, field):
                yield config.finding("TRI019", f"{shown} has {field} without TensorRT", kind, index, field)


def _batch_tensors(config: Config) -> Iterator[Finding]:
    inputs = {tensor.name for tensor in config.message.input}
    outputs = {tensor.name for tensor in config.message.output}
    for kind, group in (
        ("batch_input", config.message.batch_input),
        ("batch_output", config.message.batch_output),
    ):
        for index, one in enumerate(group):
            wrong = []
            if len(one.source_input) != 1:
                wrong.append(f"names {len(one.source_input)} inputs as source_input")
            wrong += [f"names {name}, which is no input" for name in one.source_input if name not in inputs]
            if kind == "batch_input":
                known = (model_config_pb2.TYPE_INT32, model_config_pb2.TYPE_FP32)
                if one.data_type not in known:
                    wrong.append("is neither TYPE_INT32 nor TYPE_FP32")
            else:
                wrong += [
                    f"names {name}, which is no output" for name in one.target_name if name not in outputs
                ]
            for sentence in () if config.completes("input") or config.completes("output") else wrong:
                yield config.finding("TRI020", f"{kind} {index + 1} {sentence}", kind, index)


def _labels(config: Config) -> Iterator[Finding]:
    for index, output in enumerate(config.message.output):
        name = output.label_filename
        if name and not (config.directory / name).is_file():
            sentence = f"{output.name} has label_filename {name}, which is not in {config.model}/"
            yield config.finding("TRI021", sentence, "output", index, "label_filename")


def _response_cache(config: Config) -> Iterator[Finding]:
    message = config.message
    if message.response_cache.enable:
        if message.model_transaction_policy.decoupled:
            yield config.finding("TRI022", "response_cache on a decoupled model", "response_cache")
        if message.HasField("sequence_batching"):
            yield config.finding("TRI022", "response_cache on a model with sequences", "response_cache")


def _instances(config: Config) -> Iterator[Finding]:
    if config.is_ensemble:
        return
    for index, group in enumerate(config.message.instance_group):
        if group.count <= 0 and config.root.find(("instance_group", index)).named("count"):
            yield config.finding("TRI029", f"count is {group.count}", "instance_group", index, "count")
        kind = _GROUP.Kind.Name(group.kind)
        if group.gpus and group.kind in (_GROUP.KIND_CPU, _GROUP.KIND_MODEL):
            yield config.finding("TRI023", f"{kind} names gpus", "instance_group", index, "gpus")
        if any(gpu < 0 for gpu in group.gpus):
            yield config.finding("TRI023", "a GPU has a number below 0", "instance_group", index, "gpus")
        if group.profile and config.backend not in ("tensorrt", ""):
            yield config.finding("TRI023", "profile without TensorRT", "instance_group", index, "profile")
        for name in group.profile if config.backend == "tensorrt" else ():
            if not name.isdecimal():
                sentence = f'profile "{name}" is no number from 0 on'
                yield config.finding("TRI023", sentence, "instance_group", index, "profile")


def _warm_up(config: Config) -> Iterator[Finding]:
    if config.is_ensemble:
        return
    most = config.message.max_batch_size
    for index, sample in enumerate(config.message.model_warmup):
        if sample.batch_size == 0:
            continue  # the server skips it
        at = ("model_warmup", index)
        wrong = [
            sentence for name, one in sorted(sample.inputs.items()) for sentence in _sample(config, name, one)
        ]
        if most >= 0 and sample.batch_size > max(1, most):
            wrong.append(f"has batch_size {sample.batch_size}, max_batch_size is {most}")
        if not config.completes("input"):
            for tensor in config.message.input:
                if tensor.name not in sample.inputs and not tensor.optional:
                    wrong.append(f"lacks the input {tensor.name}")
        for sentence in wrong:
            yield config.finding("TRI024", f"sample {sample.name or index + 1} {sentence}", *at)


def _sample(config: Config, name: str, one: Any) -> Iterator[str]:
    kind = one.WhichOneof("input_data_type")
    if kind is None:
        yield f"has no data for {name}"
    elif kind == "input_data_file" and not (config.directory / "warmup" / one.input_data_file).is_file():
        yield f"reads {name} from warmup/{one.input_data_file}, which is missing"
    if any(size < 0 for size in one.dims):
        yield f"has dims of -1 for {name}"
        return
    for tensor in config.message.input:
        if tensor.name == name and tensor.data_type and tensor.dims:
            if one.data_type != tensor.data_type:
                types = [model_config_pb2.DataType.Name(each.data_type) for each in (one, tensor)]
                yield f"has {name} as {types[0]}, it is {types[1]}"
            elif len(one.dims) != len(tensor.dims) or any(
                size not in (-1, given) for size, given in zip(tensor.dims, one.dims, strict=True)
            ):
                yield f"has {name} with dims {list(one.dims)}, they are {list(tensor.dims)}"


def _python_parameters(config: Config) -> Iterator[Finding]:
    value = config.parameters.get("FORCE_CPU_ONLY_INPUT_TENSORS", "yes")
    if config.backend == "python" and value not in ("yes", "no"):
        yield config.finding("TRI028", f"FORCE_CPU_ONLY_INPUT_TENSORS is {value}", "parameters")
    environment = config.parameters.get("EXECUTION_ENV_PATH", "")
    here = "$$TRITON_MODEL_DIRECTORY/"
    name = environment.removeprefix(here)
    if config.backend == "python" and name != environment and not (config.directory / name).exists():
        yield config.finding("TRI027", f"there is no {name} in {config.model}/", "parameters")


def _model_file(config: Config) -> Iterator[Finding]:
    name = str(config.message.default_model_filename) or SOURCES.get(config.backend, "")
    if config.is_ensemble or not name or config.message.cc_model_filenames or _from_agents(config):
        return
    for version, folder in sorted(config.loaded.items()):
        if (folder / name).exists() or config.backend == "pytorch":  # model.pt, or model.pt2, or model.py
            continue
        at = ("default_model_filename",) if config.message.default_model_filename else ()
        if config.backend == "python":
            if not (config.directory / name).exists():  # the backend also takes one for all versions
                yield config.finding("TRI025", f"{config.model}/{version} has no {name}", *at)
        else:
            yield config.finding("TRI027", f"{config.model}/{version} has no {name}", *at)


LOOKS: tuple[Callable[[Config], Iterator[Finding]], ...] = (
    _name,
    _backend,
    _versions,
    _batch_size,
    _tensors,
    _batch_tensors,
    _labels,
    _response_cache,
    _instances,
    _warm_up,
    _python_parameters,
    _model_file,
)
