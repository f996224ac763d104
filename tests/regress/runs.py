"""Made-up runs for tests of comparisons: every time is given, none is measured."""

import itertools

from trimodal.regress.golden.cases import Case
from trimodal.regress.golden.schema import LINE
from trimodal.regress.values import Observation, Record, RecordedAnswer, RecordedRun, Server

DIGEST = "d" * 64


def case(number=1, digest=DIGEST, **line):
    """A case without files."""
    whole = {"id": f"case-{number}", "task": "llm", "input": {"prompt": "?"}, **line}
    return Case(number, LINE.validate_python(whole, strict=False), None, None, digest)


def record(
    *answer, task="llm", ttft=(), tpot=(), total=(), cache=(), tokens=10, prompt=5, first=True, digest=DIGEST
):
    """A record; `answer` are strings or RecordedAnswer, the last one is that of all further requests.

    The times are of the counted requests; one before them, twenty times as slow, is not counted.
    """
    answers = [
        RecordedAnswer(text=one, finish_reason="stop") if isinstance(one, str) else one for one in answer
    ]
    answers = answers or [RecordedAnswer(text="yes", finish_reason="stop")]
    count = max(len(ttft), len(tpot), len(total), len(cache), len(answer) - first)
    rows = itertools.zip_longest(ttft, tpot, total, cache, range(count))
    observations = [
        Observation(
            answer=0,
            ttft=one,
            tpot=two,
            total=three or 0.0,
            cache=kind or "",
            tokens=tokens,
            prompt_tokens=prompt,
        )
        for one, two, three, kind, _ in rows
    ]
    if first:
        slow = {"ttft": 20 * max(ttft, default=1), "tpot": 20.0, "total": 20 * max(total, default=1)}
        observations.insert(0, Observation(answer=0, first=True, tokens=tokens, prompt_tokens=prompt, **slow))
    distinct = list(dict.fromkeys(answers))
    for place, one in enumerate(observations):
        given = answers[min(place, len(answers) - 1)]
        observations[place] = one.model_copy(update={"answer": distinct.index(given)})
    return Record(task=task, digest=digest, answers=tuple(distinct), observations=tuple(observations))


def run(server=None, concurrency=1, **cases):
    """A run; names have _ for -."""
    named = {name.replace("_", "-"): one for name, one in cases.items()}
    return RecordedRun(
        schema_version=1,
        recorded_at="2026-11-21T12:00:00+00:00",
        concurrency=concurrency,
        server=server or Server(),
        cases=named,
    )
