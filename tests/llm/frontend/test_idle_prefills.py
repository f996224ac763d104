"""Prefixes that are computed while no client needs the engine: which, in which order, what ends one."""

from __future__ import annotations

import itertools
import json
import logging
from types import SimpleNamespace

import pytest

from trimodal.llm.engines.protocol import Adapter, EngineRequest, Output, Sampling
from trimodal.llm.frontend.idle_prefills import MAX_PREFIXES, IdlePrefills

BLOCK, POOL = 4, 100  # a block's tokens, the pool's blocks
PUBLIC = [9] * 8


class Rig:
    """An engine that notes what it is given; prefixes may take half of its pool of 400 tokens."""

    def __init__(self, share: float = 0.5, public: tuple[list[int], ...] = ()) -> None:
        self.given: list[EngineRequest] = []
        self.cancelled: list[int] = []
        info = SimpleNamespace(block_tokens=BLOCK, num_kv_blocks=POOL)
        client = SimpleNamespace(info=info, add=self.given.append, cancel=self.cancelled.append)
        self.public = public
        engine = SimpleNamespace(client=client)
        self.idle = IdlePrefills(share, engine, itertools.count(1), lambda: self.public)  # type: ignore[arg-type]

    def found(
        self, prompt: list[int], tokens: int, tenant: str = "", salt: str = "", **fields: object
    ) -> None:
        salt = json.dumps([tenant, salt]) if salt else tenant
        request = EngineRequest(0, prompt, Sampling(5), salt, **fields)  # type: ignore[arg-type]
        self.idle.found(request, tenant, tokens)

    def computed(self) -> list[tuple[list[int], str]]:
        """All that it begins, each ended by the engine."""
        self.given.clear()
        while self.idle.begin():
            self.idle.take([Output(self.given[-1].id, [1], "length")])
        return [(one.prompt_ids, one.cache_salt) for one in self.given]


def test_what_prompts_found_is_due_when_the_engine_is_lost_the_last_first_each_with_its_salt() -> None:
    rig = Rig()
    rig.found([1] * 10, 9, "acme")
    rig.found([2] * 10, 4, "umbrella")
    assert rig.computed() == []
    rig.idle.lost()
    assert rig.computed() == [([2] * 4, "umbrella"), ([1] * 8, "acme")]
    assert rig.computed() == []


def test_a_talk_that_grows_takes_the_place_of_its_beginning_but_not_of_another_salts() -> None:
    rig = Rig()
    for salt, tokens in (("acme", 8), ("umbrella", 8), ("acme", 12), ("acme", 12)):
        rig.found([1] * 20, tokens, salt)
    rig.idle.lost()
    assert rig.computed() == [([1] * 12, "acme"), ([1] * 8, "umbrella")]


def test_the_prefixes_of_a_salt_that_has_many_make_room_and_those_of_others_stay() -> None:
    rig = Rig()
    rig.found([1] * 40, 40, "umbrella")
    for token in range(2, 20):
        rig.found([token] * 40, 40, "acme")
    rig.idle.lost()
    assert [ids[0] for ids, _ in rig.computed()] == [19, 18, 17, 16, 1], "200 tokens"


def test_a_tenant_with_many_salts_gives_his_own_oldest() -> None:
    rig = Rig(share=1.0)
    rig.found([1] * 4, 4, "umbrella")
    for number in range(70):
        rig.found([2] * 4, 4, "acme", salt=str(number))
    rig.found([3] * 120, 120, "umbrella")
    rig.idle.lost()
    kept = [("umbrella", 120), *((json.dumps(["acme", str(number)]), 4) for number in range(69, 7, -1))]
    assert [(salt, len(ids)) for ids, salt in rig.computed()] == [*kept, ("umbrella", 4)]


def test_a_long_one_stays_where_many_tenants_have_a_short_one_each() -> None:
    rig = Rig(share=1.0)
    for number in range(MAX_PREFIXES):
        rig.found([1] * 4, 4, str(number))
    rig.found([2] * 120, 120, "umbrella")
    rig.idle.lost()
    assert [salt for _, salt in rig.computed()] == ["umbrella", *map(str, range(MAX_PREFIXES - 1, 0, -1))]


def test_a_beginning_that_a_longer_one_has_is_not_kept_beside_it_and_shared_ones_count_once() -> None:
    rig = Rig()
    rig.found([1] * 12, 12)
    rig.found([2] * 8, 8)
    rig.found([1] * 12, 8)
    rig.idle.lost()
    assert [ids for ids, _ in rig.computed()] == [[1] * 12, [2] * 8], "it was found last"
    rig = Rig()
    for token in range(2, 12):
        rig.found([1] * 160 + [token] * 4, 164)
    rig.idle.lost()
    assert len(rig.computed()) == 10, "200 tokens"
    rig.found([1] * 160 + [12] * 4, 164)
    rig.idle.lost()
    assert [ids[-1] for ids, _ in rig.computed()] == list(range(12, 2, -1)), "the oldest made room"


def test_what_takes_more_than_its_share_or_an_adapter_or_no_block_is_not_remembered() -> None:
    rig = Rig()
    rig.found([1] * 300, 204)
    rig.found([1] * 10, 3)
    rig.found([1] * 10, 8, adapter=Adapter("poet", 1, "/poet"))
    rig.found(PUBLIC + [1], 8, "acme", public_tokens=8)
    rig.idle.lost()
    assert rig.computed() == []
    rig = Rig(share=0.0)
    rig.found([1] * 10, 8)
    rig.idle.lost()
    assert rig.computed() == []


def test_public_ones_are_due_from_the_start_and_before_the_others() -> None:
    rig = Rig(public=(PUBLIC,))
    assert rig.computed() == [(PUBLIC, "")]
    rig.found(PUBLIC + [1] * 8, 12, "acme", public_tokens=8)
    rig.idle.lost()
    assert rig.computed() == [(PUBLIC, ""), (PUBLIC + [1] * 4, "acme")]
    assert [one.public_tokens for one in rig.given] == [0, 8]


def test_public_ones_are_those_of_the_day_when_they_are_computed() -> None:
    """After midnight a new engine had yesterday's, which no prompt begins with."""
    rig = Rig(public=(PUBLIC,))
    assert rig.computed() == [(PUBLIC, "")]
    rig.idle.emptied()
    rig.public = ([8] * 8,)
    assert rig.computed() == [([8] * 8, "")]
    assert rig.computed() == []


def test_a_request_ends_the_one_that_runs_which_begins_again() -> None:
    rig = Rig(public=(PUBLIC, [8] * 8))
    assert rig.idle.begin()
    assert rig.idle.begin(), "one at a time"
    rig.idle.interrupt()
    rig.idle.interrupt()
    assert (len(rig.given), rig.cancelled) == (1, [1])
    assert [ids for ids, _ in rig.computed()] == [PUBLIC, [8] * 8]


def test_one_that_the_engine_refuses_does_not_stop_the_next() -> None:
    rig = Rig(public=(PUBLIC, [8] * 8))
    rig.idle.begin()
    rig.idle.take([Output(7, [1], "stop"), Output(1, [], "refused", error="the engine refused it")])
    assert rig.computed() == [([8] * 8, "")]


def test_an_engine_that_dies_of_one_is_not_given_it_again_but_all_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(public=(PUBLIC, [8] * 8))
    for token in (1, 2):
        rig.found([token] * 10, 8)
    rig.idle.begin()
    with caplog.at_level(logging.ERROR):
        rig.idle.lost()
    assert "a prefix of 8 tokens, which is not computed again" in caplog.text
    rig.idle.begin()
    rig.idle.take([Output(rig.given[-1].id, [1], "length")])
    rig.idle.begin()
    assert rig.given[-1].prompt_ids == [2] * 8
    rig.idle.lost()
    rig.found([2] * 10, 8)
    for _ in range(2):
        assert [ids for ids, _ in rig.computed()] == [[8] * 8, [1] * 8]
        rig.idle.lost()


def test_a_cancelled_one_is_blamed_until_the_engine_has_made_a_step() -> None:
    rig = Rig(public=(PUBLIC, [8] * 8))
    rig.idle.begin()
    rig.idle.interrupt()
    rig.idle.lost()
    assert [ids for ids, _ in rig.computed()] == [[8] * 8]
    rig.idle.emptied()
    rig.idle.begin()
    rig.idle.interrupt()
    rig.idle.take([])
    rig.idle.lost()
    assert [ids for ids, _ in rig.computed()] == [[8] * 8]


def test_what_a_sleeping_engine_forgot_is_not_to_blame() -> None:
    rig = Rig(public=(PUBLIC,))
    rig.idle.begin()
    rig.idle.interrupt()
    rig.idle.emptied()
    assert [ids for ids, _ in rig.computed()] == [PUBLIC]


def test_public_ones_shorter_than_a_block_of_the_engine_are_not_computed() -> None:
    """vLLM on a processor has blocks of 128 tokens: the loss of its engine was never handled."""
    rig = Rig(public=([9] * (BLOCK - 1), [8] * (BLOCK + 1)))
    assert rig.idle.begin()
    assert [len(one.prompt_ids) for one in rig.given] == [BLOCK + 1]
    rig.idle.lost()
    assert not rig.idle.begin()
