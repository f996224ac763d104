"""The prompt template: what it makes of the findings, and what is wrong with one is told at load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.assistant.doubles import labelled
from trimodal.assistant.prompt import Prompt
from trimodal.errors import InternalError, SettingsError

SHIPPED = Path(__file__).parents[2] / "model_repository" / "assistant" / "prompt.jinja"
PROMPT = Prompt(SHIPPED)
ANY = st.text(st.characters(exclude_categories=["Cs"]))


def write(tmp_path, source):
    file = tmp_path / "prompt.jinja"
    file.write_text(source, encoding="utf-8")
    return file


@given(ANY.filter(lambda text: text == text.strip() and text))
def test_a_bare_question_stays_as_it_is(text):
    assert PROMPT.render(text, "", ()) == PROMPT.render("", text, ()) == text


@given(ANY, st.lists(ANY, min_size=1, max_size=5))
def test_a_question_about_an_image_is_the_same_typed_and_spoken(text, labels):
    """The gateway's live talks rely on it: they hand on as text what was heard already."""
    saw = labelled(*((label, 0.5) for label in labels))
    assert PROMPT.render(text, "", saw) == PROMPT.render("", text, saw)


@given(ANY.filter(str.strip), st.lists(ANY.filter(str.strip), min_size=1, max_size=5))
def test_what_is_heard_is_one_quotation_and_a_label_one_line(heard, labels):
    saw = labelled(*((label, 0.5) for label in labels))
    lines = PROMPT.render("THE QUESTION", heard, saw).split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False, True], "no line is begun inside"
    assert json.loads(lines[0].removeprefix("A recording is attached. It says: ")) == heard
    assert lines[2] == f"The picture shows: {' '.join(labels[0].split())}."
    assert lines[4] == "THE QUESTION"


@pytest.mark.parametrize(
    ("score", "told"),
    [(0.96, "The picture shows: tabby cat."), (0.3, "The picture may show: tabby cat.")],
)
def test_the_best_label_is_told_and_whether_it_is_sure(score, told):
    saw = labelled(("tabby cat", score), ("tiger cat", 0.02))
    labels, _, question = PROMPT.render("what is this?", "", saw).split("\n")
    assert (labels, question) == (told, "what is this?")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{% if %}", "Expected an expression"),
        ("{{ question }}", "'question' is undefined"),
        ("{{ text.__class__.__mro__ }}", "unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("  \n", "renders an empty prompt"),
        ("{{ text }}", "renders an empty prompt"),
    ],
)
def test_a_template_that_cannot_be_used_stops_loading(tmp_path, source, told):
    with pytest.raises(SettingsError, match="parameter 'template': .*prompt.jinja") as caught:
        Prompt(write(tmp_path, source))
    assert told in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read: No such file or directory"):
        Prompt(tmp_path / "none.jinja")
    file = tmp_path / "latin1.jinja"
    file.write_bytes(b"\xff{{ text }}")
    with pytest.raises(SettingsError, match="cannot be read: it is not UTF-8"):
        Prompt(file)


def test_one_that_fails_on_some_values_is_an_error_of_the_request(tmp_path):
    prompt = Prompt(write(tmp_path, "{{ text or heard }}{{ '' if heard != 'zero' else 1 / 0 }}"))
    assert prompt.render("a", "b", ()) == "a"
    with pytest.raises(InternalError, match="the prompt template fails: division by zero"):
        prompt.render("a", "zero", ())
