"""What a server is started with. Values only: nothing is looked up or checked on the machine here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import trimodal
from trimodal.build_support import ENGINES_VARIABLE
from trimodal.errors import ServerError

# cpu: CPU engines · cuda: GPU engines from wheels, nothing compiled · gpu: compiled engines in NVIDIA's image
Profile = Literal["cpu", "cuda", "gpu"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
# Changes one parsed ModelConfig of an overlay in place: (model name, ModelConfig).
Edit = Callable[[str, Any], None]


def default_repository() -> Path:
    """`model_repository` of the working directory, else the one beside the package's source tree."""
    here = Path.cwd() / "model_repository"
    return here if here.is_dir() else Path(trimodal.__file__).resolve().parents[1] / "model_repository"


def default_engines() -> Path | None:
    """Where the build scripts of this environment put artefacts, when that is not the repository itself."""
    directory = os.environ.get(ENGINES_VARIABLE)
    return Path(directory) if directory else None


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
    drain_timeout: float = 30.0
    ready_timeout: float = 300.0
    log: Path | None = None  # None: a new file in the cache directory
    log_verbose: int = 0  # Triton's own --log-verbose
    operator_key: str | None = None  # None: a random one per server
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # model → parameter → text
    edit: Edit | None = None

    @property
    def ports(self) -> dict[str, int]:
        """Flag → port, as asked for."""
        return {
            "--http-port": self.http_port,
            "--grpc-port": self.grpc_port,
            "--metrics-port": self.metrics_port,
        }
