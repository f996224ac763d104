"""The gate before calls inside Triton."""

from __future__ import annotations

import threading

import pytest

from tests.assistant.doubles import BOUND
from trimodal.assistant.values import Stopped
from trimodal.triton.calls import Gate


def never():
    pass


def test_no_more_wait_together_than_set():
    gate = Gate(3)
    lock, go, full = threading.Lock(), threading.Event(), threading.Event()
    inside, most = 0, 0

    def call():
        nonlocal inside, most
        with gate.waiting(never):
            with lock:
                inside += 1
                most = max(most, inside)
                if inside == 3:
                    full.set()
            assert go.wait(BOUND)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=call) for _ in range(12)]
    for thread in threads:
        thread.start()
    assert full.wait(BOUND)
    go.set()
    for thread in threads:
        thread.join(BOUND)
    assert (most, inside) == (3, 0)


def test_who_need_not_wait_any_more_gives_up_and_errors_free_the_place():
    gate = Gate(1)
    with pytest.raises(OSError, match="x"), gate.waiting(never):
        raise OSError("x")
    with gate.waiting(never), pytest.raises(Stopped), gate.waiting(stop_after(1)):
        pytest.fail("two are in")


def stop_after(looks):
    left = iter(range(looks - 1))

    def check():
        if next(left, None) is None:
            raise Stopped

    return check
