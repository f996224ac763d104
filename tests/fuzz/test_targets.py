"""Our parsers on committed inputs, on inputs that hypothesis makes, and, slow, on thousands of seeded ones.

`scripts/ci/fuzz coverage` runs the same targets for as long as it is told to, guided by the lines they reach.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.choices import Choices
from tests.fuzz.coverage import SEEDS, seeds
from tests.fuzz.hostile import spoil_bytes
from tests.fuzz.targets.promise import Broken, promise
from tests.fuzz.targets.table import NAMES, target
from trimodal.errors import InvalidArgument

SEEDED = {"events": 600, "files": 600}  # the slower ones; of the others
MANY = 6_000
# Starlette's parser leaves the file of an upload to the garbage collector where a later part is malformed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("name", NAMES)
def test_committed_inputs(name: str) -> None:
    committed = seeds(name)
    assert committed
    assert (SEEDS / f"{name}.txt").stat().st_size < 24_000
    for one in committed:
        target(name).run(one)


@pytest.mark.parametrize("name", NAMES)
def test_made_up_inputs(name: str) -> None:
    @settings(max_examples=40, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @example(b"")
    @given(st.binary(max_size=700))
    def check(data: bytes) -> None:
        target(name).run(data)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_seeded_inputs(name: str) -> None:
    run, committed = target(name).run, seeds(name)
    for number in range(SEEDED.get(name, MANY)):
        chance = random.Random(number)
        data = chance.randbytes(chance.choice((60, 300, 900)))
        if number % 2:
            data = spoil_bytes(Choices(data), chance.choice(committed))
        run(data)


def test_what_breaks_the_promise_is_told() -> None:
    for told, fault in [
        ("", "says nothing"),
        ("x" * 500, "has 500 characters"),
        ("max_tokens \ud800", "cannot be sent"),
        ("Traceback (most recent call last)", "tells of the machine"),
    ]:
        with pytest.raises(Broken, match=fault), promise(InvalidArgument):
            raise InvalidArgument(told)
    with pytest.raises(KeyError), promise(InvalidArgument):
        raise KeyError("x")
    with promise(InvalidArgument):
        raise InvalidArgument("max_tokens is 0: it must be between 1 and 8")


def test_choices_end_when_their_bytes_do() -> None:
    choices = Choices(b"")
    assert choices.integer(3, 9) == 3
    assert choices.pick("abc") == "a"
    assert not choices.chance(2)
    assert Choices.seeded(7).rest() == Choices.seeded(7).rest() != Choices.seeded(8).rest()
