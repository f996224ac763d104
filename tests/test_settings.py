"""Parameters of config.pbtxt become typed settings, or one sentence that names file and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import Field, ValidationError, model_validator

from trimodal.errors import SettingsError
from trimodal.llm.settings import LlmSettings
from trimodal.settings import Settings, parameters_of, parse_parameters, read_toml


class Oven(Settings):
    degrees: int = Field(180, ge=0, le=300)
    name: str = "oven"
    fan: bool = False
    trays: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _cool_when_empty(self) -> Oven:
        if self.name == "empty" and self.degrees:
            raise ValueError("an empty oven must be at 0 degrees")
        return self


def parse(**parameters: str) -> Oven:
    return parse_parameters(Oven, parameters, source="oven/config.pbtxt")


def told(**parameters: str) -> str:
    with pytest.raises(SettingsError) as caught:
        parse(**parameters)
    return str(caught.value)


def test_what_triton_s_python_backend_reads_itself_is_no_setting() -> None:
    assert parse(FORCE_CPU_ONLY_INPUT_TENSORS="yes", EXECUTION_ENV_PATH="/env.tar.gz", fan="true") == Oven(
        fan=True
    )


def test_text_becomes_values() -> None:
    assert parse(degrees=" 200 ", fan="true", name="  hot ") == Oven(degrees=200, fan=True, name="hot")
    assert parse() == Oven()


def test_an_unknown_key_is_named_with_those_that_exist() -> None:
    unknown = "oven/config.pbtxt: unknown parameter"
    assert told(degree="9") == f"{unknown} 'degree' (did you mean degrees?)"
    assert told(colour="red") == f"{unknown} 'colour' (known: degrees, name, fan, trays)"


def test_what_has_very_many_keys_does_not_list_them() -> None:
    with pytest.raises(SettingsError) as refused:
        parse_parameters(LlmSettings, {"colour": "red", "max_num_seq": "8"}, source="llm/config.pbtxt")
    assert str(refused.value) == (
        "llm/config.pbtxt: unknown parameter 'colour'; "
        "unknown parameter 'max_num_seq' (did you mean max_num_seqs?)"
    )


def test_a_malformed_value_is_shown_with_what_was_expected() -> None:
    assert told(degrees="hot").startswith("oven/config.pbtxt: parameter 'degrees' = 'hot': Input should be")
    assert told(degrees="301").endswith(
        "parameter 'degrees' = '301': Input should be less than or equal to 300"
    )
    assert "'fan' = 'perhaps'" in told(fan="perhaps")


def test_all_problems_are_in_one_sentence() -> None:
    sentence = told(degrees="hot", fan="perhaps", colour="red")
    assert "\n" not in sentence
    for key in ("degrees", "fan", "colour"):
        assert f"'{key}'" in sentence


def test_values_that_do_not_fit_together() -> None:
    assert told(name="empty").endswith("an empty oven must be at 0 degrees")
    assert "Value error" not in told(name="empty")


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        parse().degrees = 5  # type: ignore[misc]


def test_parameters_come_out_of_tritons_json() -> None:
    config = {"name": "oven", "parameters": {"degrees": {"string_value": "90"}, "name": {"string_value": ""}}}
    assert parameters_of(json.dumps(config)) == {"degrees": "90", "name": ""}
    assert parameters_of("{}") == {}


def test_a_file_without_an_end_is_not_read_to_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than"):
        read_toml(Path("/dev/zero"))
    file = tmp_path / "a.toml"
    file.write_text("a = 1")
    assert read_toml(file) == {"a": 1}
