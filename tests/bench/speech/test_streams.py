from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.bench.speech.spoken import spoken
from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.bench.speech import streams
from trimodal.bench.speech.streams import Pace, StreamRun, play, run_streams
from trimodal.errors import InternalError, Unavailable


class Clock:
    """Time that only passes where somebody sleeps or works."""

    def __init__(self, begin=1000.0, oversleep=0.0):
        self.time, self.oversleep = begin, oversleep

    def __call__(self):
        return self.time

    async def sleep(self, seconds):
        # At least what a float of this size can show, else a wait for less would never end.
        self.time += max(seconds, 1e-9) + self.oversleep


@dataclass
class Update:
    committed: tuple = ()
    tentative: str = ""
    lag_s: float = 0.0


@dataclass
class FakeStream:
    """Takes `work` seconds for each answer; answers what `script` has for the number of chunks."""

    clock: Clock
    work: float = 0.0
    script: dict = field(default_factory=dict)
    sent: list = field(default_factory=list)

    async def send(self, samples):
        self.sent.append((self.clock.time - 1000.0, samples))
        self.clock.time += self.work
        answer = self.script.get(len(self.sent), Update())
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def end(self):
        self.clock.time += 0.4
        return self.script.get("end", Update())


def word(text, start, end):
    return Word(f" {text}", start, end, 1.0)


async def test_chunks_go_out_when_they_are_spoken_and_delays_do_not_add_up():
    clock = Clock(oversleep=0.013)
    stream, run = FakeStream(clock, work=0.02), StreamRun()
    samples = np.arange(SAMPLE_RATE * 3 + 160, dtype=np.float32)
    await play(stream, samples, 0.1, Pace(clock, clock.sleep), run)
    times = [at for at, _ in stream.sent]
    due = [0.1 * (number + 1) for number in range(30)] + [3.01]
    late = np.subtract(times, due)
    assert late.min() >= 0
    # Each is late by one oversleep, or, the last and short one, by the answer before it.
    assert late.max() < 0.0401
    assert run.late == pytest.approx(late.tolist(), abs=1e-6)
    assert np.array_equal(np.concatenate([chunk for _, chunk in stream.sent]), samples)
    assert run.sent == pytest.approx(3.01)
    assert run.flush == pytest.approx(0.4)


async def test_after_a_stall_the_clock_catches_up():
    clock = Clock()
    stream = FakeStream(clock)

    async def slow_once(samples):
        if len(stream.sent) == 5:
            clock.time += 0.55
        return await FakeStream.send(stream, samples)

    stream_of_one_stall = type("Stalling", (), {"send": staticmethod(slow_once), "end": stream.end})()
    run = StreamRun()
    await play(stream_of_one_stall, np.zeros(SAMPLE_RATE * 2, np.float32), 0.1, Pace(clock, clock.sleep), run)
    assert run.late[:6] == pytest.approx([0] * 6, abs=1e-6)
    # The answer to chunk 6, due at 0.6, came at 1.15: the next are late until those missed are sent.
    assert run.late[6:12] == pytest.approx([0.45, 0.35, 0.25, 0.15, 0.05, 0], abs=1e-6)


async def test_a_words_lag_is_counted_when_the_client_holds_it():
    clock = Clock()
    script = {
        3: Update(tentative=" one"),
        8: Update((word("one", 0.1, 0.5),), " two", lag_s=0.3),
        "end": Update((word("two", 0.5, 0.9),), lag_s=0.1),
    }
    stream, run = FakeStream(clock, work=0.05, script=script), StreamRun()
    await play(stream, np.zeros(SAMPLE_RATE, np.float32), 0.1, Pace(clock, clock.sleep), run)
    assert run.first == pytest.approx(0.35)
    assert run.text == " one two"
    assert [held.lag for held in run.words] == pytest.approx([0.85 - 0.5, 1.05 + 0.4 - 0.9])
    assert run.server_lags == [0.3, 0.1]


async def test_white_space_is_no_first_text():
    run = StreamRun()
    run.hold(Update(tentative=" "), 0.2)
    assert run.first is None
    run.hold(Update((word("a", 0, 0.1),)), 0.3)
    assert run.first == 0.3


class FakeClient:
    """`listen` gives the streams in turn; each is its own context."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def listen(self, **options):
        self.asked.append(options)
        answer = self.answers.pop(0)

        class Context:
            async def __aenter__(self):
                return self

            async def __aexit__(self, *error):
                return None

            count = 0

            async def send(self, samples):
                Context.count += 1
                if isinstance(answer, Exception):
                    raise answer
                if Context.count == answer:
                    raise Unavailable("no room any more")
                return Update()

            async def end(self):
                return Update((word("end", 0, 0.1),))

        return Context()


async def test_refused_and_failed_streams_are_told_apart_and_harm_no_other(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(streams, "Pace", lambda: Pace(clock, clock.sleep))
    client = FakeClient(Unavailable("8 streams are open"), 2, InternalError("broke"), 0)
    runs = await run_streams(client, [spoken(seconds=0.5)] * 4, policy="vad", chunk_s=0.1, delays=[0.0] * 4)
    assert [run.refused for run in runs] == ["8 streams are open", "", "", ""]
    assert [run.failed for run in runs] == ["", "no room any more", "broke", ""]
    assert runs[1].sent == pytest.approx(0.1)
    assert runs[3].text == " end"
    assert client.asked == [{"policy": "vad"}] * 4
