"""Settings of the assistant, read from its config.pbtxt `parameters`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from trimodal.paths import setting_path
from trimodal.settings import Settings


class AssistantSettings(Settings):
    """Which models it calls, how their findings become a prompt, and how much it takes in."""

    llm: str = Field("llm", min_length=1, description="model that answers")
    speech: str = Field("speech", description="model that hears; empty: audio is refused")
    vision: str = Field("vision", description="model that sees; empty: images are refused")
    grpc_address: str = Field("", description="of this server, host:port; empty: as serve says, or 8001")
    template: str = Field("prompt.jinja", min_length=1, description="jinja2 file beside the config's")
    examples: str = Field("", description="JSON file of turns, put before a talk with an image; empty: none")
    system: str = Field("", description="system message before every prompt; empty: none")
    max_requests: int = Field(64, ge=1, le=1024, description="at once; more get UNAVAILABLE")
    max_text_bytes: int = Field(65_536, ge=1, description="of text_input")
    max_history_bytes: int = Field(262_144, ge=2, description="of history")
    max_audio_s: float = Field(60, gt=0, le=600)
    chunk_s: float = Field(5, ge=0.5, le=20, description="audio handed to the model that hears in one piece")
    cancel_poll_ms: int = Field(20, ge=1, le=1000, description="how often cancellation is looked for")
    version_directory: Path = Field(Path("."), description="set by the glue, not by operators")

    @property
    def template_file(self) -> Path:
        """Beside the config's, unless absolute."""
        return self.version_directory.parent / setting_path(self.template)

    @property
    def examples_file(self) -> Path | None:
        """Beside the config's, unless absolute; None: there is none."""
        return self.version_directory.parent / setting_path(self.examples) if self.examples else None
