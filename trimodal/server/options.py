"""What a server is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from trimodal.errors import ServerError
from trimodal.paths import default_engines, default_repository, expanded

# cpu: CPU engines · cuda: GPU engines from wheels, nothing compiled · tensorrt: compiled, in NVIDIA's image
Profile = Literal["cpu", "cuda", "tensorrt"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

PORTS = ("http_port", "grpc_port", "metrics_port", "health_port")
PATHS = {"repository": "--model-repository", "engines": "--engines", "log": "--log"}
FREE_PORTS: dict[str, Any] = dict.fromkeys(PORTS, 0)
"""Options of a server whose ports are picked."""


def parse_otlp(text: str) -> str:
    """The URL that traces are sent to; /v1/traces where the text names no path. Raises: ServerError."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # [::1 without its end, or a port that is no number
        is_url = False
    if not is_url:
        raise ServerError(f"--otlp {text}: a URL of http or https is needed, as http://collector:4318")
    return text if parts.path.strip("/") else f"{text.rstrip('/')}/v1/traces"


def parse_profile(text: str) -> Profile:
    """Raises: ServerError naming the profiles that there are."""
    if text not in PROFILES:
        raise ServerError(f"{text} is not a profile: {', '.join(PROFILES[:-1])} or {PROFILES[-1]}")
    return text


@dataclass(frozen=True)
class ServerOptions:
    """One server. A port of 0 picks a free one; times are in seconds."""

    repository: Path = field(default_factory=default_repository)
    profile: Profile = "cpu"
    engines: Path | None = field(default_factory=default_engines)  # artefacts outside the repository
    models: tuple[str, ...] = ()  # empty: every model of the repository
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    health_port: int = 8003
    health_host: str = ""  # of the health page; empty: host
    drain_timeout: float = 30.0
    ready_timeout: float = 300.0
    hang_timeout: float = 10.0  # until a process that runs and does nothing is ended; 0: never
    log: Path | None = None  # None: a new file in the cache directory
    otlp: str = ""  # URL of an OpenTelemetry collector's HTTP receiver; empty: no traces
    otlp_every: int = 1  # traces one request in so many; 0: only those that belong to a client's trace
    operator_key: str | None = None  # None: a random one per server
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # model → parameter → text

    def __post_init__(self) -> None:
        """Raises: ServerError naming the option: a path begins with the ~ of a user whom nobody knows."""
        for name, option in PATHS.items():
            if path := getattr(self, name):
                object.__setattr__(self, name, expanded(path, option, ServerError))

    @classmethod
    def on_free_ports(cls, *models: str, **others: Any) -> ServerOptions:
        """A server of these models on ports that are free."""
        return cls(**{"models": models, **FREE_PORTS, **others})

    @property
    def ports(self) -> dict[str, int]:
        """Flag → port, as asked for."""
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in PORTS}
