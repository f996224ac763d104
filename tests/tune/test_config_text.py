"""Every edit changes one value of the parsed config, and no other character than it must."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from trimodal.errors import SettingsError
from trimodal.tune.config_text import set_field, set_parameter

FILES = sorted((Path(__file__).parents[2] / "model_repository").glob("*/**/*.pbtxt"))
DELAY = ("dynamic_batching", "max_queue_delay_microseconds")


def parsed(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def changed_lines(old: str, new: str) -> list[str]:
    lines = difflib.ndiff(old.splitlines(), new.splitlines())
    return [line for line in lines if line.startswith(("+ ", "- "))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: "-".join(file.parts[-3:]))
def test_every_file_of_the_repository_keeps_all_but_the_value(file: Path) -> None:
    text = file.read_text()
    original = parsed(text)
    for key in sorted(original.parameters)[::4] or sorted(original.parameters):
        new = set_parameter(text, key, 'new \\ "value"')
        wanted = model_config_pb2.ModelConfig()
        wanted.CopyFrom(original)
        wanted.parameters[key].string_value = 'new \\ "value"'
        assert parsed(new) == wanted
        before, after = changed_lines(text, new)
        assert before.partition("  #")[2] == after.partition("  #")[2]
        assert set_parameter(new, key, original.parameters[key].string_value) == text
    new = set_parameter(text, "added", "1")
    assert parsed(new).parameters["added"].string_value == "1"
    assert len(changed_lines(text, new)) == 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: "-".join(file.parts[-3:]))
def test_tritons_fields_of_every_file(file: Path) -> None:
    text = file.read_text()
    wanted = parsed(text)
    new = set_field(text, ("max_batch_size",), "7")
    wanted.max_batch_size = 7
    assert parsed(new) == wanted
    assert len(changed_lines(text, new)) == 2
    if not wanted.HasField("dynamic_batching"):
        return
    new = set_field(new, DELAY, "1234")
    wanted.dynamic_batching.max_queue_delay_microseconds = 1234
    assert parsed(new) == wanted
    new = set_field(new, ("dynamic_batching", "preferred_batch_size"), "[ 2, 4 ]")
    wanted.dynamic_batching.preferred_batch_size[:] = [2, 4]
    assert parsed(new) == wanted
    new = set_field(new, ("dynamic_batching", "preferred_batch_size"), None)
    del wanted.dynamic_batching.preferred_batch_size[:]
    assert parsed(new) == wanted
    new = set_field(new, ("instance_group", "count"), "5")
    wanted.instance_group[0].count = 5
    assert parsed(new) == wanted
    comments = [line.partition("#")[2] for line in text.splitlines() if "preferred" not in line]
    kept = [line.partition("#")[2] for line in new.splitlines() if "preferred" not in line]
    assert [one for one in comments if one] == [one for one in kept if one]


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("dynamic_batching { }", "dynamic_batching { max_queue_delay_microseconds: 9 }"),
        ("dynamic_batching {}", "dynamic_batching { max_queue_delay_microseconds: 9 }"),
        ("dynamic_batching: <>", "dynamic_batching: < max_queue_delay_microseconds: 9 >"),
        (
            "dynamic_batching {\n  # none yet\n}\n",
            "dynamic_batching {\n  # none yet\n  max_queue_delay_microseconds: 9\n}\n",
        ),
        (
            "dynamic_batching {\n\tpreferred_batch_size: [ 4, 8 ];  # planned\n}\n",
            "dynamic_batching {\n\tpreferred_batch_size: [ 4, 8 ];  # planned\n"
            "\tmax_queue_delay_microseconds: 9\n}\n",
        ),
        (
            "dynamic_batching { preferred_batch_size: 4, preferred_batch_size: 8 }  # two",
            "dynamic_batching { preferred_batch_size: 4, preferred_batch_size: 8 "
            "max_queue_delay_microseconds: 9 }  # two",
        ),
        (
            "dynamic_batching{max_queue_delay_microseconds:1;preserve_ordering:true}#x",
            "dynamic_batching{max_queue_delay_microseconds:9;preserve_ordering:true}#x",
        ),
        (
            "dynamic_batching {\n  max_queue_delay_microseconds:  # how long\n    1,  # here\n}",
            "dynamic_batching {\n  max_queue_delay_microseconds:  # how long\n    9,  # here\n}",
        ),
        (
            "max_batch_size: 4  # batch\nname: 'x'\n",
            "max_batch_size: 4  # batch\ndynamic_batching { max_queue_delay_microseconds: 9 }\nname: 'x'\n",
        ),
        (
            "max_batch_size: 4 name: 'x'",
            "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 9 } name: 'x'",
        ),
        (
            "name: 'a' 'b' # max_batch_size: 3 { \"\n",
            "name: 'a' 'b' # max_batch_size: 3 { \"\ndynamic_batching { max_queue_delay_microseconds: 9 }\n",
        ),
        ("", "dynamic_batching { max_queue_delay_microseconds: 9 }\n"),
        ("# none", "# none\ndynamic_batching { max_queue_delay_microseconds: 9 }\n"),
    ],
)
def test_odd_layouts(text: str, new: str) -> None:
    assert set_field(text, DELAY, "9") == new
    wanted = parsed(text)
    wanted.dynamic_batching.max_queue_delay_microseconds = 9
    assert parsed(new) == wanted


@pytest.mark.parametrize(
    ("text", "new"),
    [
        (
            "dynamic_batching {\n  preferred_batch_size: 4\n  preferred_batch_size: 8  # two\n}\n",
            "dynamic_batching {\n  preferred_batch_size: [ 16 ]\n}\n",
        ),
        (
            "dynamic_batching { preferred_batch_size: 4 preferred_batch_size: 8 preserve_ordering: true }",
            "dynamic_batching { preferred_batch_size: [ 16 ] preserve_ordering: true }",
        ),
        (
            "dynamic_batching { preferred_batch_size: [\n  4,  # small\n  8\n] }",
            "dynamic_batching { preferred_batch_size: [ 16 ] }",
        ),
    ],
)
def test_repeated_fields_become_one_list(text: str, new: str) -> None:
    assert set_field(text, ("dynamic_batching", "preferred_batch_size"), "[ 16 ]") == new


def test_a_block_of_several_entries_means_the_first() -> None:
    text = "instance_group [\n  { count: 1 kind: KIND_CPU },\n  { count: 2 kind: KIND_GPU }\n]\n"
    assert set_field(text, ("instance_group", "count"), "3") == text.replace("count: 1", "count: 3")


def test_parameters_of_every_layout() -> None:
    text = (
        "parameters [ { key: 'a' value { string_value: '1' } },\n"
        " { key: \"b\", value: < string_value: '2' > } ]\n"
        "parameters {\n  key: 'c'\n  value: {\n    string_value: 'long'\n"
        "      ' text'  # two pieces\n  }\n}\n"
        "parameters { key: 'd' value { } }\nparameters { key: 'e' }\n"
    )
    for key in "abcdef":
        new = set_parameter(text, key, "9")
        wanted = parsed(text)
        wanted.parameters[key].string_value = "9"
        assert parsed(new) == wanted, key


def test_what_is_missing_is_not_removed() -> None:
    text = "name: 'x'\n"
    assert set_field(text, DELAY, None) == text
    assert set_field(text, ("max_batch_size",), None) == text


@pytest.mark.parametrize("text", ["name 'x", "a {", "a: [ 1 2 ]", "a: }", "}", "a: 1 ]", "a: $"])
def test_a_text_that_cannot_be_read_names_the_line(text: str) -> None:
    with pytest.raises(SettingsError, match="line 2 of the model configuration"):
        set_field(f"\n{text}", ("max_batch_size",), "1")
