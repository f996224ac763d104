"""Traces of every form, and what is said of malformed ones: file, line, field."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.errors import SettingsError
from trimodal.plan.fleet.traces import Arrival, read_trace

OWN = "arrival_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n"


def written(tmp_path: Path, text: str, name: str = "trace.csv") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_this_projects_csv(tmp_path: Path) -> None:
    file = written(tmp_path, OWN + "3.5,100,20,doc,64\n1.5,7,3,,\n2,9,4,talk,\n")
    assert read_trace(file) == [
        Arrival(0.0, 7, 3),
        Arrival(0.5, 9, 4, "talk"),
        Arrival(2.0, 100, 20, "doc", 64),
    ]


def test_columns_of_prefixes_may_be_missing(tmp_path: Path) -> None:
    file = written(tmp_path, "prompt_tokens,arrival_s,output_tokens\n5,0,6\n")
    assert read_trace(file) == [Arrival(0.0, 5, 6)]


def test_json_lines(tmp_path: Path) -> None:
    text = (
        '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 6, "prefix_id": 7}\n\n'
        '{"arrival_s": 1.5, "prompt_tokens": 8, "output_tokens": 1}\n'
    )
    file = written(tmp_path, text, "t.jsonl")
    assert read_trace(file) == [Arrival(0.0, 5, 6, "7"), Arrival(1.5, 8, 1)]


def test_azure_2023_and_2024(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    first, second = read_trace(written(tmp_path, text))
    assert (first, second[1:3]) == (Arrival(0.0, 374, 44), (396, 109))
    assert second.at == pytest.approx(4.314579)
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
    assert read_trace(written(tmp_path, text)) == [Arrival(0.0, 2162, 5)]


def test_burstgpt_with_and_without_sessions(tmp_path: Path) -> None:
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
        "118,GPT-4,417,276,693,API log\n"
    )
    assert read_trace(written(tmp_path, text)) == [Arrival(0.0, 472, 18), Arrival(113.0, 417, 276)]
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,17,1.0,ChatGPT,472,18,490,Conversation log\n"
    )
    assert read_trace(written(tmp_path, text)) == [Arrival(0.0, 472, 18, "17")]


def test_speed_scale_and_seconds(tmp_path: Path) -> None:
    file = written(tmp_path, OWN + "0,100,20,a,50\n10,100,1,,\n30,1,1,,\n")
    assert read_trace(file, speed=2, scale=0.5, seconds=10) == [
        Arrival(0.0, 50, 10, "a", 25),
        Arrival(5.0, 50, 1),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no request in it"),
        ("a,b\n1,2\n", r"line 1: the columns arrival_s,prompt_tokens,output_tokens or TIMESTAMP"),
        (OWN + "0,1,1,,\n\n1,x,1,,\n", "line 4: prompt_tokens is 'x': a whole number from 0 to"),
        (OWN + "0,1,-2,,\n", "line 2: output_tokens is '-2'"),
        (OWN + "0,1.5,2,,\n", "line 2: prompt_tokens is '1.5'"),
        (OWN + "0,1,99999999999,,\n", "line 2: output_tokens is '99999999999'"),
        (OWN + "soon,1,2,,\n", "line 2: arrival_s is 'soon': seconds or a date is needed"),
        (OWN + "nan,1,2,,\n", "line 2: arrival_s is 'nan'"),
        (OWN + "0,1\n", "line 2: output_tokens is missing"),
        (OWN + "0,1,2,,30\n", "line 2: prefix_tokens is 30, but prefix_id is empty"),
        ('{"arrival_s": 0, "prompt_tokens": 1}\n', "line 1: output_tokens is missing"),
        ('{"arrival_s": 0}\n{oops\n', "line 1: output_tokens is missing"),
        (
            '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n[1]\n',
            r"line 2: an object is needed, not \[1\]",
        ),
        ('{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n{oops\n', "line 2: Expecting"),
        (
            '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": true}\n',
            "line 1: output_tokens is True",
        ),
        (
            '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1, "prefix_id": [1]}\n',
            r"line 1: prefix_id is \[1\]: a text or a number",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError, match=sentence) as found:
        read_trace(file)
    assert str(file) in str(found.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        read_trace(tmp_path / "none.csv")
    file = tmp_path / "binary.csv"
    file.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(SettingsError, match="not UTF-8"):
        read_trace(file)
