"""Loads configurations into a running server through its repository API, and puts back what was there.

Seen on Triton 2.51 (24.10): a load with a `config` keeps that configuration through later loads without
one, which do nothing while the file is as old as it was; so what was there is put back as a `config` too (an
edit of the file counts again at the next load). A Python model with custom metrics that is loaded
over itself ends the server with signal 11 within seconds, in 2 of 4 tries: perhaps because old and new share
the metrics. So every model is unloaded first. What `config` is refused for before the model opens is not told
("failed to poll from model repository"); the server's log says it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]
from tritonclient.grpc import InferenceServerClient, model_config_pb2
from tritonclient.utils import InferenceServerException

from trimodal.errors import ServerError
from trimodal.server.launch import GRPC_OPERATOR_HEADER

_LOAD_S = 600.0
_CALL_S = 20.0
_AGAIN_S = 0.5


class LiveServer:
    """A server at `url` (host:port of gRPC), as its operator sees it."""

    def __init__(self, url: str, operator_key: str = "") -> None:
        self.url, self.operator_key = url, operator_key
        self._client = InferenceServerClient(url)
        self._headers = {GRPC_OPERATOR_HEADER: operator_key} if operator_key else {}

    def config(self, model: str) -> Any:
        """Returns the ModelConfig that the server has. Raises: ServerError."""
        try:
            return self._client.get_model_config(model, client_timeout=_CALL_S).config
        except InferenceServerException as error:
            raise self._failure(error, f"model {model} is not loaded at {self.url}") from None

    def load(self, model: str, config: Any) -> str:
        """Loads the model with this configuration; why it was refused, or nothing. Raises: ServerError."""
        text = json_format.MessageToJson(config, preserving_proto_field_name=True)
        try:
            self._client.load_model(model, headers=self._headers, config=text, client_timeout=_LOAD_S)
        except InferenceServerException as error:
            if _closed(error) or _unreachable(error):
                raise self._failure(error, "") from None
            return _first_line(str(error.message()))
        return ""

    def unload(self, model: str) -> None:
        """Takes the model away, and waits until it is gone. Raises: ServerError."""
        try:
            self._client.unload_model(model, headers=self._headers, client_timeout=_CALL_S)
        except InferenceServerException as error:
            raise self._failure(error, f"model {model} does not unload: {error.message()}") from None
        deadline = time.monotonic() + _CALL_S
        while self._state(model) == "UNLOADING" and time.monotonic() < deadline:
            time.sleep(0.05)

    def ready(self, model: str) -> bool:
        try:
            return bool(self._client.is_model_ready(model, client_timeout=_CALL_S))
        except InferenceServerException:
            return False

    def close(self) -> None:
        self._client.close()

    def _state(self, model: str) -> str:
        try:
            index = self._client.get_model_repository_index(headers=self._headers, client_timeout=_CALL_S)
        except InferenceServerException as error:
            raise self._failure(error, f"the model index is not told: {error.message()}") from None
        return next((str(entry.state) for entry in index.models if entry.name == model), "")

    def _failure(self, error: InferenceServerException, otherwise: str) -> ServerError:
        if why := _closed(error):
            return ServerError(f"the server at {self.url} does not let models be loaded: {why}")
        if _unreachable(error):
            return ServerError(f"no server at {self.url}")
        return ServerError(otherwise or str(error.message()))


class Snapshot:
    """What a server had before anything was tried, and the way back to it."""

    def __init__(self, server: LiveServer, configs: Mapping[str, Any]) -> None:
        self._server, self.configs = server, dict(configs)

    @classmethod
    def take(cls, server: LiveServer, models: Iterable[str]) -> Snapshot:
        """Raises: ServerError: a model is not loaded."""
        return cls(server, {name: server.config(name) for name in models})

    def restore(self, *, patience: float = 60.0) -> list[str]:
        """Puts back every model that is not as it was. Returns the names of those that were not.

        Raises: ServerError naming the models that did not come back within `patience` seconds.
        """
        changed: dict[str, str] = {}
        deadline = time.monotonic() + patience
        while True:
            left = [name for name in self.configs if not self._is_back(name)]
            for name in left:
                changed[name] = self._put_back(name)
            if all(self._is_back(name) for name in left):
                return list(changed)
            if time.monotonic() >= deadline:
                why = "; ".join(
                    f"{name} ({changed[name] or 'it is not ready'})"
                    for name in left
                    if not self._is_back(name)
                )
                raise ServerError(f"not put back as before: {why}: load it again by hand")
            time.sleep(_AGAIN_S)  # perhaps a load of before is still under way

    def _is_back(self, name: str) -> bool:
        try:
            return self._server.ready(name) and self._server.config(name) == self.configs[name]
        except ServerError:
            return False

    def _put_back(self, name: str) -> str:
        try:
            self._server.unload(name)
            why = self._server.load(name, self.configs[name])
        except ServerError as error:
            return str(error)
        return why

    def dump(self) -> dict[str, str]:
        """Model → configuration as JSON, for another process."""
        return {
            name: json_format.MessageToJson(config, preserving_proto_field_name=True)
            for name, config in self.configs.items()
        }

    @classmethod
    def of_dump(cls, server: LiveServer, dumped: Mapping[str, str]) -> Snapshot:
        return cls(
            server,
            {name: json_format.Parse(text, model_config_pb2.ModelConfig()) for name, text in dumped.items()},
        )


def apply(
    server: LiveServer, wanted: Mapping[str, Any], *, needed: Mapping[str, Any], anew: bool = False
) -> str:
    """Loads the configurations that the server does not have yet. Returns why one was refused, or nothing.

    Args:
        needed: models that must be ready in the end, as they were: an ensemble is not, with a step that does
            not fit it.
        anew: loads all of them: one may hang.
    """
    left = {name: config for name, config in wanted.items() if anew or not _has(server, name, config)}
    why = ""
    for _ in range(2):  # twice: a step may only fit to what a later one brings
        for name in list(left):
            server.unload(name)
            refused = server.load(name, left[name])
            if refused:
                why = why or f"model {name}: {refused}"
            else:
                del left[name]
        if not left:
            break
    if left:
        return why
    for name, config in needed.items():
        if not server.ready(name):
            refused = server.load(name, wanted.get(name, config))
            if refused or not server.ready(name):
                return f"{name} cannot be served with this" + (f": {refused}" if refused else "")
    return ""


def _has(server: LiveServer, name: str, wanted: Any) -> bool:
    """Whether the server has this already; it fills in a preferred batch size where none is named."""
    try:
        live = server.config(name)
    except ServerError:
        return False
    if live == wanted:
        return True
    filled = type(wanted)()
    filled.CopyFrom(wanted)
    if filled.HasField("dynamic_batching") and not filled.dynamic_batching.preferred_batch_size:
        filled.dynamic_batching.preferred_batch_size[:] = [filled.max_batch_size]
    return bool(live == filled)


def _unreachable(error: InferenceServerException) -> bool:
    return str(error.status()) in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")


def _closed(error: InferenceServerException) -> str:
    """What the server needs before it loads models; empty: that is not the matter."""
    message = str(error.message())
    if "restricted" in message:
        return (
            "give its operator key, as `trimodal serve` has it: TRIMODAL_OPERATOR_KEY or --operator-key-file"
        )
    if "explicit" in message:
        return "it was not started with --model-control-mode=explicit"
    return ""


def _first_line(message: str) -> str:
    """What a person needs of Triton's report: without the traceback behind it."""
    line = message.partition("\\n\\nAt:")[0].partition("\n\nAt:")[0].strip().splitlines()
    text = line[0] if line else "refused"
    return text.partition(" is at UNAVAILABLE state: ")[2] or text
