"""The demo's questions to the assistant: when an answer counts, and what is shown of it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.gateway.conftest import Serve, fake_triton
from trimodal.demo import assistant
from trimodal.demo.assistant import QUESTIONS, Question, texts
from trimodal.paths import data_directory

SAMPLES = data_directory() / "samples"
SAID = "He was not an ill-disposed young man,"


@pytest.mark.parametrize(
    ("asked", "answer", "heard", "said", "right"),
    [
        (Question(("cat",)), "The picture shows a tiger cat.", "", "", True),
        (Question(("cat",)), "A dog.", "", "", False),
        (Question(("cat",)), "The picture shows a tiger cat, not a tiger cat.", "", "", False),
        (Question(("cat",)), "The picture shows a tiger cat, no cat.", "", "", False),
        (Question(("koala",), denied=True), "The picture shows a koala, no dog.", "", "", True),
        (Question(("koala",), denied=True), "The picture shows a koala, not a dog.", "", "", True),
        (Question(("koala",), denied=True), "The picture shows a koala.", "", "", False),
        (Question(("koala",), denied=True), "There is no dog.", "", "", False),
        (Question(("panda",)), "A panda.", "he was not an ill disposed young man", SAID, True),
        (Question(("panda",)), "A panda.", "he was an old man", SAID, False),
    ],
)
def test_an_answer_counts_by_what_it_names_and_what_was_heard(
    asked: Question, answer: str, heard: str, said: str, right: bool
) -> None:
    assert asked.is_right(answer, heard, said) is right


def test_its_files_are_there_and_every_recording_has_a_text() -> None:
    files = [file for one in QUESTIONS for file in (one.image, one.audio) if file]
    assert [file for file in files if not (SAMPLES / file).is_file()] == []
    assert {one.audio for one in QUESTIONS if one.audio} <= set(texts(SAMPLES))


async def test_findings_are_shown_before_the_answer_and_a_wrong_one_fails_the_act(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake sees a seven in any picture, and answers "A seven."."""
    out = io.StringIO()
    asked = Question(("seven",), text="What is it?", image="photos/cat.jpg")
    async with serve(fake_triton()).openai_async() as api:
        monkeypatch.setattr(assistant, "QUESTIONS", (asked,))
        assert await assistant.assistant(api, Console(file=out, width=100), SAMPLES)
        monkeypatch.setattr(assistant, "QUESTIONS", (asked, Question(("cat",), text="And?")))
        assert not await assistant.assistant(api, Console(file=io.StringIO()), SAMPLES)
    lines = [line.split() for line in out.getvalue().splitlines()]
    names = [line[0] for line in lines if line and line[0] in ("question", "photo", "seen", "answer")]
    assert names == ["question", "photo", "seen", "answer"]
    assert ["answer", "A", "seven."] in lines
