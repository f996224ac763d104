"""Reads and sets one knob of a model configuration: in the parsed message, and in the file's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from trimodal.errors import SettingsError
from trimodal.tune.config_text import set_field, set_parameter

# Triton's own knobs → where they stand; every other name is a parameter.
PATHS: dict[str, tuple[str, ...]] = {
    "max_batch_size": ("max_batch_size",),
    "max_queue_delay_microseconds": ("dynamic_batching", "max_queue_delay_microseconds"),
    "preferred_batch_size": ("dynamic_batching", "preferred_batch_size"),
    "instance_count": ("instance_group", "count"),
    "eager_batching": ("optimization", "eager_batching"),
}
NONE = "none"  # a list without entries: preferred_batch_size=none


def read(config: Any, name: str) -> str | None:
    """The knob's value as text (a list as 4+8); None: a parameter that the configuration does not name."""
    if name not in PATHS:
        return config.parameters[name].string_value if name in config.parameters else None
    message: Any = config
    for part in _path(config, name):
        message = getattr(message, part)
        if _repeated_blocks(message):
            message = message[0] if message else model_config_pb2.ModelInstanceGroup(count=1)
    if name == "preferred_batch_size":
        # The server fills in max_batch_size where a file names none.
        sizes = [] if list(message) == [config.max_batch_size] else list(message)
        return "+".join(map(str, sizes)) or NONE
    if isinstance(message, bool):
        return str(message).lower()
    return str(message)


def put(config: Any, name: str, value: str) -> None:
    """Sets the knob in the parsed configuration. Raises: SettingsError naming knob and value."""
    if name not in PATHS:
        config.parameters[name].string_value = value
        return
    *blocks, last = _path(config, name)
    message: Any = config
    for part in blocks:
        message = getattr(message, part)
        if _repeated_blocks(message):
            message = message[0] if message else message.add()
    try:
        if name == "preferred_batch_size":
            message.SetInParent()
            getattr(message, last)[:] = _sizes(value)
        elif message.DESCRIPTOR.fields_by_name[last].type == FieldDescriptor.TYPE_BOOL:
            setattr(message, last, {"true": True, "false": False}[value])
        else:
            setattr(message, last, int(value))
    except (ValueError, KeyError, TypeError):
        raise SettingsError(f"{name} cannot be {value!r}") from None


def put_text(text: str, name: str, value: str) -> str:
    """The config's text with the knob set, all else as it was.

    Raises:
        SettingsError: the edited text would not say what the knob means; the file is left alone.
    """
    wanted = _parsed(text)
    put(wanted, name, value)
    if name not in PATHS:
        new = set_parameter(text, name, value)
    elif name == "preferred_batch_size":
        sizes = ", ".join(map(str, _sizes(value)))
        new = set_field(text, _path(wanted, name), f"[ {sizes} ]" if sizes else None)
    else:
        new = set_field(text, _path(wanted, name), value)
    if _parsed(new) != wanted:
        raise SettingsError(f"{name} cannot be set in this layout: set it to {value} by hand")
    return new


def file_for(directory: Path, profile: str) -> Path:
    """The file that a profile reads of a model's directory."""
    own = directory / "configs" / f"{profile}.pbtxt"
    return own if profile != "tensorrt" and own.is_file() else directory / "config.pbtxt"


def _path(config: Any, name: str) -> tuple[str, ...]:
    if name == "max_queue_delay_microseconds" and config.sequence_batching.HasField("oldest"):
        return ("sequence_batching", "oldest", name)
    return PATHS[name]


def _sizes(value: str) -> list[int]:
    return [] if value == NONE else sorted(int(part) for part in value.split("+"))


def _repeated_blocks(message: Any) -> bool:
    return hasattr(message, "add")


def _parsed(text: str) -> Any:
    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except (text_format.ParseError, ValueError) as error:  # ValueError: an enumeration's number is too large
        raise SettingsError(f"the model configuration is not valid: {error}") from None
