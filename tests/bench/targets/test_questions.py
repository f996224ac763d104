from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.bench.load.lengths import parse_lengths
from trimodal.bench.targets.questions import Mix, Questions, read_lines


def mix(prompt: str = "64", answer: str = "16", **more: object) -> Mix:
    return Mix(parse_lengths(prompt, ""), parse_lengths(answer, ""), **more)  # type: ignore[arg-type]


def test_a_number_is_the_same_question_and_another_seed_asks_others() -> None:
    one, same, other = Questions(mix(), 1), Questions(mix(), 1), Questions(mix(), 2)
    one.prepare(5)
    assert [one(n) for n in range(9)] == [same(n) for n in range(9)]
    assert len({one(n).text for n in range(9)} | {other(n).text for n in range(9)}) == 18


def test_of_one_seed_of_sizes_others_are_asked_that_are_as_long() -> None:
    one, other = (Questions(mix("uniform:20-400", "uniform:4-90"), text, sizes=7) for text in (1, 2))
    for number in range(20):
        mine, theirs = one(number), other(number)
        assert mine.text != theirs.text
        assert mine.max_tokens == theirs.max_tokens
        assert len(mine.text.split()) == len(theirs.text.split())


async def test_prompts_are_as_long_as_the_model_counts() -> None:
    async def count(text: str) -> int:
        return 10 + 5 * len(text.split())  # a chat template of 10 tokens, 5 for a word

    questions = Questions(mix("200"))
    await questions.calibrate(count)
    assert await count(questions(0).text) == pytest.approx(200, abs=3)


def test_lines_of_a_file_are_asked_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("one\n\ntwo\n")
    asked = Questions(mix(lines=read_lines(file)))
    assert [asked(number).text for number in range(3)] == ["one", "two", "one"]


def test_each_round_begins_at_another_line() -> None:
    lines = [str(number) for number in range(500)]
    asked = Questions(mix(lines=lines))
    rounds = [[asked.reseeded(f"0 8 streams {round}")(n).text for n in range(3)] for round in range(3)]
    assert len({text for texts in rounds for text in texts}) == 9
    assert rounds[0] == [asked.reseeded("0 8 streams 0")(n).text for n in range(3)]
