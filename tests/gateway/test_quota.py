import asyncio
from contextlib import ExitStack, suppress

import pytest

from trimodal.audio.values import SAMPLE_RATE
from trimodal.gateway.errors import ApiError
from trimodal.gateway.keys import Key
from trimodal.gateway.quota import (
    HELD_S,
    KEY_HELD_S,
    MAX_AUDIO_S,
    REFUSAL_S,
    REFUSALS,
    Cost,
    HeldAudio,
    KeyUsage,
    Quota,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def key(**limits: int) -> Key:
    return Key(name="a", hash="sha256:" + "0" * 64, **limits)  # type: ignore[arg-type]


def ask(quota: Quota, who: Key, tokens: int = 0) -> dict[str, str]:
    with quota.use(who) as usage:
        usage.tokens = tokens
    return dict(usage.headers)


def test_requests_a_minute() -> None:
    clock = Clock()
    quota, who = Quota(clock), key(requests_per_minute=3)
    left = [ask(quota, who)["x-ratelimit-remaining-requests"] for _ in range(3)]
    assert left == ["2", "1", "0"]
    with pytest.raises(ApiError, match="3 requests a minute") as caught:
        ask(quota, who)
    assert (caught.value.status, caught.value.retry_after_s) == (429, pytest.approx(20))
    clock.now += 20
    ask(quota, who)
    with pytest.raises(ApiError):
        ask(quota, who)
    clock.now += 3600
    assert ask(quota, who)["x-ratelimit-remaining-requests"] == "2", "never more than a minute's worth"


def test_tokens_are_charged_afterwards_and_a_debt_is_waited_for() -> None:
    clock = Clock()
    quota, who = Quota(clock), key(tokens_per_minute=60)
    ask(quota, who, tokens=100)
    with pytest.raises(ApiError, match="60 tokens a minute") as caught:
        ask(quota, who)
    assert caught.value.retry_after_s == pytest.approx(41)
    clock.now += 41
    ask(quota, who)


def test_a_budget_is_not_spent_many_times_at_once() -> None:
    quota, who = Quota(Clock()), key(tokens_per_minute=50)
    with quota.use(who) as usage:
        for _ in range(30):
            with pytest.raises(ApiError, match="50 tokens a minute"):
                ask(quota, who)
        usage.tokens = 4
    assert ask(quota, who)["x-ratelimit-remaining-tokens"] == "46", "the reserve is given back"


def test_what_is_reserved_does_not_come_back_while_it_is_used() -> None:
    clock = Clock()
    quota, who = Quota(clock), key(tokens_per_minute=6000)
    with quota.use(who) as usage:
        clock.now += 60
        usage.tokens = 1000
    assert ask(quota, who)["x-ratelimit-remaining-tokens"] == "5000"


@pytest.mark.parametrize("given_up", [0, 100])
def test_as_many_at_once_as_the_budget_holds_of_what_they_use(given_up: int) -> None:
    """What is given up makes no room for more."""
    clock = Clock()
    quota, who = Quota(clock), key(tokens_per_minute=1_000_000)
    for tokens in [20_000] * 100 + [0] * given_up:
        ask(quota, who, tokens=tokens)
        clock.now += 60
    with ExitStack() as running:
        for _ in range(51):
            running.enter_context(quota.use(who)).tokens = 20_000
        with pytest.raises(ApiError, match="1000000 tokens a minute"):
            ask(quota, who)


def test_streams_at_once_and_one_that_fails_gives_its_place_back() -> None:
    quota, who = Quota(Clock()), key(max_streams=1)
    with quota.use(who), pytest.raises(ApiError, match="1 requests of this key run"):
        ask(quota, who)
    with pytest.raises(ValueError, match="broken"), quota.use(who):
        raise ValueError("broken")
    ask(quota, who)


def test_no_limits_no_headers_and_limits_that_come_later() -> None:
    quota = Quota(Clock())
    for _ in range(99):
        assert ask(quota, key(), tokens=10**6) == {}
    assert ask(quota, key(requests_per_minute=5, tokens_per_minute=7))["x-ratelimit-remaining-tokens"] == "7"


def test_pictures_are_charged_before_and_audio_while_it_is_heard() -> None:
    clock = Clock()
    quota, who = Quota(clock), key(images_per_minute=10, audio_seconds_per_minute=600)
    with quota.use(who, Cost(images=9, audio=True)) as usage:
        assert usage.headers["x-ratelimit-remaining-images"] == "1"
        usage.hear(580)
        with pytest.raises(ApiError, match="600 audio seconds a minute"), quota.use(who, Cost(audio=True)):
            pass  # 20 s are left, and as many as a request has are reserved
        with quota.use(who, Cost(images=5)):
            pass  # a debt
        with pytest.raises(ApiError, match="10 images a minute") as caught, quota.use(who, Cost(images=1)):
            pass
        assert caught.value.retry_after_s == pytest.approx(30)
        usage.hear(500)
    with quota.use(who), pytest.raises(ApiError, match="600 audio seconds") as caught:
        quota.check_audio(who)
    assert caught.value.retry_after_s == pytest.approx(48.1)
    clock.now += 49
    quota.check_audio(who)


def test_a_long_debt_is_told_in_digits() -> None:
    """Beyond a quarter of an hour it was "3.6e+03s"."""
    quota, who = Quota(Clock()), key(audio_seconds_per_minute=60)
    with quota.use(who, Cost(audio=True)) as usage:
        usage.hear(3600)
    assert ask(quota, who)["x-ratelimit-reset-audio-seconds"] == "3600.000s"


def test_the_audio_of_one_request_is_bounded_without_a_limit_too() -> None:
    with Quota(Clock()).use(key(), Cost(audio=True)) as usage:
        usage.hear(MAX_AUDIO_S)
        with pytest.raises(ApiError, match="the recordings of one request are longer than 14400 s"):
            usage.hear(1)
        usage.live(10**6)


def test_refusals_without_end_are_told_more_slowly() -> None:
    clock = Clock()
    quota, who = Quota(clock), key(requests_per_minute=1)
    assert [quota.refusal_wait_s(who) for _ in range(REFUSALS)] == [0.0] * REFUSALS
    assert [quota.refusal_wait_s(who) for _ in range(99)] == [REFUSAL_S] * 99
    clock.now += 0.25
    assert quota.refusal_wait_s(who) == pytest.approx(REFUSAL_S * 0.75), "never longer, however many came"
    clock.now += 60
    assert quota.refusal_wait_s(who) == 0.0
    assert quota.refusal_wait_s(Key(name="b", hash="sha256:" + "1" * 64)) == 0.0


async def test_recordings_that_are_held_are_bounded_for_a_key_and_for_all() -> None:
    """Eight requests of a key held 300 MB decoded at once, and 1,000 of one without limits 37 GB."""
    room, waits = HeldAudio(), asyncio.ensure_future
    for name in ("a", "b"):
        for _ in range(round(KEY_HELD_S // 600)):
            await room.take(name, 600 * SAMPLE_RATE)
    assert 2 * KEY_HELD_S == HELD_S, "two keys can have all of it"
    own, other = (waits(room.take(name, 600 * SAMPLE_RATE)) for name in "ac")
    left = waits(room.take("c", 600 * SAMPLE_RATE))
    await asyncio.sleep(0)
    assert not any(one.done() for one in (own, other, left))
    left.cancel()
    room.give("b", 600 * SAMPLE_RATE)
    await other
    assert not own.done(), "a has as much as a key may"
    room.give("a", 600 * SAMPLE_RATE)
    await own
    late = waits(room.take("b", 1))
    await asyncio.sleep(0)
    room.give("c", 600 * SAMPLE_RATE)
    late.cancel()  # in the moment when its turn comes
    with pytest.raises(asyncio.CancelledError):
        await late
    await asyncio.gather(room.take("d", 600 * SAMPLE_RATE))


async def test_parts_of_seconds_leave_nothing_behind() -> None:
    """Sums of seconds drifted: after some requests the last recording that fits was refused."""
    room = HeldAudio()
    parts = [48_123, 1, 77_777, 15_999] * 50
    await room.take("a", 600 * SAMPLE_RATE)
    usage = KeyUsage({}, key="a", room=room)
    for samples in parts:
        await usage.hold(samples)
    for samples in parts:
        usage.free(samples)
    assert usage.held == 0
    full = asyncio.ensure_future(room.take("a", round((KEY_HELD_S - 600) * SAMPLE_RATE)))
    await asyncio.sleep(0)
    assert full.done()


async def test_a_request_that_ends_gives_its_recordings_room_back() -> None:
    quota, who = Quota(Clock()), key()
    for _ in range(round(2 * KEY_HELD_S // 600)):
        with suppress(ValueError), quota.use(who) as usage:
            await usage.hold(600 * SAMPLE_RATE)
            raise ValueError
