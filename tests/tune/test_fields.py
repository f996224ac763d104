"""Every edit changes one value of the parsed config, and no other character than it must."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tune.doubles import parsed
from trimodal.errors import SettingsError
from trimodal.tune.fields import PATHS, put, put_text, read

FILES = sorted((Path(__file__).parents[2] / "model_repository").glob("*/**/*.pbtxt"))
DELAY = "max_queue_delay_microseconds"


@pytest.mark.parametrize("file", FILES, ids=lambda file: "-".join(file.parts[-3:]))
def test_every_file_of_the_repository_keeps_all_but_the_value(file: Path) -> None:
    text = file.read_text()
    original = parsed(text)
    parameters = [(key, 'new \\ "value"') for key in sorted(original.parameters)[::4]]
    knobs = [] if original.platform == "ensemble" else [(name, "7") for name in PATHS]
    for name, value in [*parameters, *knobs, ("added", "1")]:
        new = put_text(text, name, value)
        wanted = parsed(text)
        put(wanted, name, value)
        assert parsed(new) == wanted
        assert read(wanted, name) == value
        changed = set(text.splitlines()) - set(new.splitlines())
        assert len(changed) <= 1 + ("preferred_batch_size" in text and name == "max_batch_size")
        assert all(line.partition("  #")[2] in new for line in changed)
        if name in original.parameters:
            assert put_text(new, name, original.parameters[name].string_value) == text


@pytest.mark.parametrize(
    ("name", "text", "new"),
    [
        (DELAY, "dynamic_batching { }", f"dynamic_batching {{ {DELAY}: 9 }}"),
        (DELAY, "dynamic_batching {}", f"dynamic_batching {{ {DELAY}: 9}}"),
        (
            DELAY,
            "dynamic_batching {\n  preferred_batch_size: [ 4, 8 ]  # planned\n}\n",
            f"dynamic_batching {{\n  {DELAY}: 9\n  preferred_batch_size: [ 4, 8 ]  # planned\n}}\n",
        ),
        (DELAY, f"dynamic_batching{{{DELAY}:1}}#x", f"dynamic_batching{{{DELAY}:9}}#x"),
        (
            DELAY,
            "max_batch_size: 4  # batch\nname: 'x'\n",
            f"max_batch_size: 4  # batch\ndynamic_batching {{ {DELAY}: 9 }}\nname: 'x'\n",
        ),
        (DELAY, "", f"dynamic_batching {{ {DELAY}: 9 }}\n"),
        ("max_batch_size", "# none", "# none\nmax_batch_size: 9\n"),
        (
            "instance_count",
            "instance_group [\n  { count: 1 kind: KIND_CPU },\n  { count: 2 kind: KIND_GPU }\n]\n",
            "instance_group [\n  { count: 9 kind: KIND_CPU },\n  { count: 2 kind: KIND_GPU }\n]\n",
        ),
        (
            "b",
            "parameters [ { key: 'a' value { } },\n{ key: \"b\", value: < string_value: '2' > } ]",
            'parameters [ { key: \'a\' value { } },\n{ key: "b", value: < string_value: "9" > } ]',
        ),
        (
            "c",
            "parameters {\n  key: 'c'\n  value: {\n    string_value: 'long'\n      ' text'  # two\n  }\n}\n",
            "parameters {\n  key: 'c'\n  value: {\n    string_value: \"9\"  # two\n  }\n}\n",
        ),
    ],
)
def test_layouts(name: str, text: str, new: str) -> None:
    assert put_text(text, name, "9") == new
    wanted = parsed(text)
    put(wanted, name, "9")
    assert parsed(new) == wanted


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("max_batch_size", "a: $", "is not valid"),
        ("a", "parameters [\n{ key: 'b' value { string_value: '1' } }\n]", "by hand"),
        ("a", "parameters { key: 'a' value { } }", "by hand"),
    ],
)
def test_what_is_not_understood_is_left_alone(name: str, text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        put_text(text, name, "1")


@pytest.mark.parametrize(
    ("sizes", "left"),
    [("[ 2, 4, 8, 16 ]  # planned", "[ 2, 4 ]  # planned"), ("[8,2 , 9]", "[2 ]"), ("[ 16 ]", "[  ]")],
)
def test_preferred_sizes_that_a_smaller_batch_does_not_hold_are_left_out(sizes: str, left: str) -> None:
    """The server refuses a file that has them."""
    text = f"max_batch_size: 16\ndynamic_batching {{\n  preferred_batch_size: {sizes}\n}}\n"
    assert put_text(text, "max_batch_size", "6") == text.replace("16", "6", 1).replace(sizes, left)
    with pytest.raises(SettingsError, match="by hand"):
        put_text(
            "dynamic_batching { preferred_batch_size: 8 preferred_batch_size: 2 }", "max_batch_size", "6"
        )


@pytest.mark.parametrize("value", ["x", "4,8", "99999999999999999999"])
def test_a_value_of_another_kind_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="max_batch_size cannot be"):
        put(parsed("name: 'm'"), "max_batch_size", value)
