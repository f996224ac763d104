"""A setting that cannot be stops a model's loading and names itself, and the file that it stands in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles import pb_utils
from trimodal.errors import SettingsError

REPOSITORY = Path(__file__).parents[2] / "model_repository"
FAKE = {"engine": "fake"}
UNKNOWN = "unknown parameter 'colour'"


@pytest.mark.parametrize(
    ("name", "config", "changes", "told"),
    [
        ("assistant", "config.pbtxt", {"colour": "red"}, f"assistant/config.pbtxt: {UNKNOWN}"),
        ("assistant", "config.pbtxt", {"template": "none"}, "parameter 'template': .*none cannot be read"),
        ("speech", "config.pbtxt", {"colour": "red"}, "speech/config.pbtxt: .*colour"),
        ("judge", "configs/cpu.pbtxt", {**FAKE, "max_bytes": "none"}, r"judge/config\.pbtxt"),
        ("llm", "configs/cpu.pbtxt", {"colour": "red"}, f"llm/configs/cpu.pbtxt .*: {UNKNOWN}"),
        (
            "speech_recognize",
            "configs/cpu.pbtxt",
            {**FAKE, "colour": "red"},
            f"configs/cpu.pbtxt .*: {UNKNOWN}",
        ),
        ("speech_recognize", "configs/cpu.pbtxt", {**FAKE, "language": "fr"}, "'fr': the model knows en"),
    ],
)
def test_a_bad_setting_stops_loading_and_names_itself(
    name: str, config: str, changes: dict[str, str], told: str
) -> None:
    folder = REPOSITORY / name
    _, parameters = pb_utils.config_of(folder, config)
    with pb_utils.glue(folder / "1" / "model.py") as module, pytest.raises(SettingsError, match=told):
        pb_utils.initialized(module, folder, parameters | changes)
