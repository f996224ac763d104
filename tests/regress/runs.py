"""Made-up runs for tests of comparisons: every time is given, none is measured."""

import itertools

from trimodal.regress.cases import Case
from trimodal.regress.schema import LINE
from trimodal.regress.values import Observation, Record, RecordedAnswer, RecordedRun, Server

DIGEST = "d" * 64


def case(number=1, digest=DIGEST, **line):
    """A case without files."""
    whole = {"id": f"case-{number}", "task": "llm", "input": {"prompt": "?"}, **line}
    return Case(number, LINE.validate_python(whole, strict=False), None, None, digest)


def record(*answer, task="llm", ttft=(), tpot=(), total=(), cache=(), tokens=10, digest=DIGEST):
    """A record; `answer` are strings or RecordedAnswer, the last one is that of all further requests.

    The times are of the counted requests; one before them, twenty times as slow, is not counted.
    """
    answers = [
        RecordedAnswer(text=one, finish_reason="stop") if isinstance(one, str) else one for one in answer
    ]
    answers = answers or [RecordedAnswer(text="yes", finish_reason="stop")]
    count = max(len(ttft), len(tpot), len(total), len(cache), len(answer) - 1)
    rows = itertools.zip_longest(ttft, tpot, total, cache, range(count))
    observations = [
        {"ttft": one, "tpot": two, "total": three or 0.0, "cache": kind or ""}
        for one, two, three, kind, _ in rows
    ]
    slow = {"ttft": 20 * max(ttft, default=1), "tpot": 20.0, "total": 20 * max(total, default=1)}
    given = [*answers, *itertools.repeat(answers[-1], 1 + count)]
    rows = zip([slow, *observations], given, strict=False)
    requests = tuple(Observation(**row, answer=answer, tokens=tokens) for row, answer in rows)
    return Record(task=task, digest=digest, observations=requests)


def run(server=None, **cases):
    """A run; names have _ for -."""
    named = {name.replace("_", "-"): one for name, one in cases.items()}
    return RecordedRun(
        schema_version=2,
        recorded_at="2026-11-21T12:00:00+00:00",
        server=server or Server(),
        cases=named,
    )
