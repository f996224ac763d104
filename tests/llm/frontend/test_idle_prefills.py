"""Prefixes that are computed while no client needs the engine: which, in which order, what ends one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

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
        self.idle = IdlePrefills(share, SimpleNamespace(client=client), itertools.count(1), public)  # type: ignore[arg-type]

    def found(self, prompt: list[int], tokens: int, salt: str = "", **fields: object) -> None:
        request = EngineRequest(0, prompt, Sampling(5), salt, **fields)  # type: ignore[arg-type]
        self.idle.found(request, tokens)

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
    for token in range(2 * MAX_PREFIXES):
        rig.found([token] * 4, 4, "sales")
    rig.idle.lost()
    assert len(rig.computed()) <= MAX_PREFIXES


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


def test_an_engine_that_dies_of_one_is_not_given_any_again() -> None:
    rig = Rig(public=(PUBLIC,))
    rig.found([1] * 10, 8)
    rig.idle.begin()
    rig.idle.lost()
    assert rig.computed() == []
    rig.idle.lost()
    assert rig.computed() == []
