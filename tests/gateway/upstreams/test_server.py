"""What a look at one Triton finds out."""

from __future__ import annotations

import pytest

from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.fake import FakeTransport, labelled, scripted
from trimodal.client.values import Model
from trimodal.errors import InternalError
from trimodal.gateway.upstreams.server import Upstream

TIMEOUTS = Timeouts(connect=1)


class Counted(FakeTransport):
    """Models with counts of inferences, some of which answer no question."""

    def __init__(self, **inferences: int) -> None:
        super().__init__(**dict.fromkeys(inferences, labelled(("a", 1.0))))
        self.inferences = inferences
        self.silent: set[str] = set()
        self.asked: list[str] = []

    async def models(self, timeouts: Timeouts) -> list[Model]:
        await super().models(timeouts)
        return [Model(name, "1", count) for name, count in self.inferences.items()]

    async def ready(self, model: str, timeouts: Timeouts) -> bool:
        name, _, version = model.partition("@")
        self.asked.append(name)
        return name not in self.silent


async def test_a_model_that_answers_nothing_is_dead_and_so_is_who_needs_it() -> None:
    triton = Counted(vision=0, vision_preprocess=5, vision_rank=0, llm=1)
    server = Upstream("a:1", triton)
    await server.look(TIMEOUTS)
    assert server.models == {"vision": True, "vision_preprocess": True, "vision_rank": True, "llm": True}
    triton.silent = {"vision_rank"}
    await server.look(TIMEOUTS)
    assert server.models == {"vision": False, "vision_preprocess": True, "vision_rank": False, "llm": True}
    triton.silent = set()
    await server.look(TIMEOUTS)
    assert all(server.models.values())


async def test_a_model_that_has_answered_since_the_last_look_is_not_asked() -> None:
    triton = Counted(speech=1, embedding=1)
    server = Upstream("a:1", triton)
    await server.look(TIMEOUTS)
    assert triton.asked == ["speech", "embedding"]
    triton.asked.clear()
    triton.inferences = {"speech": 5, "embedding": 2}  # the question itself counts as one
    triton.silent = {"speech"}  # as one that is busy for long
    await server.look(TIMEOUTS)
    assert (triton.asked, server.models["speech"]) == (["embedding"], True)
    await server.look(TIMEOUTS)
    assert server.models["speech"] is False


async def test_what_a_decoupled_model_refuses_counts_as_inferences_and_is_no_answer() -> None:
    triton = Counted(llm=1, assistant=1)
    server = Upstream("a:1", triton)
    await server.look(TIMEOUTS)
    triton.inferences, triton.silent = {"llm": 9, "assistant": 9}, {"llm", "assistant"}
    await server.look(TIMEOUTS)
    assert server.models == {"llm": False, "assistant": False}


async def test_versions_are_asked_and_fail_one_by_one() -> None:
    triton = FakeTransport(llm=scripted("a"), versions={"llm": ("1", "2")})
    silent = {"llm@2"}

    async def ready(model: str, timeouts: Timeouts) -> bool:
        return model not in silent

    triton.ready = ready  # type: ignore[method-assign]
    server = Upstream("a:1", triton)
    await server.look(TIMEOUTS)
    assert server.versions == {"llm": {"1": True, "2": False}}
    assert (server.answers("llm", "1"), server.answers("llm")) == (True, False), "the highest, as Triton does"
    silent.clear()
    await server.look(TIMEOUTS)
    server.failed("llm@1", InternalError("gone"))
    assert server.versions == {"llm": {"1": False, "2": True}}
    server.failed("llm", InternalError("gone"))
    assert server.versions == {"llm": {"1": False, "2": False}}


async def test_a_server_that_is_gone_keeps_its_models_names() -> None:
    triton = Counted(llm=1, embedding=1)
    server = Upstream("a:1", triton)
    await server.look(TIMEOUTS)
    triton.reachable = False
    await server.look(TIMEOUTS)
    assert server.models == {"llm": False, "embedding": False}
    triton.reachable, triton.inferences = True, {"llm": 0}
    await server.look(TIMEOUTS)
    assert server.models == {"llm": True}, "it was started anew, without the other one"


async def test_a_question_that_fails_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(model: str, timeouts: Timeouts) -> bool:
        raise InternalError("no idea")

    triton = FakeTransport(llm=scripted("a"))
    monkeypatch.setattr(triton, "ready", fails)
    server = Upstream("a:1", triton)
    await server.look(TIMEOUTS)
    assert server.models == {"llm": False}


async def test_a_model_without_steps_of_its_own_is_asked_itself() -> None:
    triton = Counted(vision=0)
    server = Upstream("a:1", triton)
    await server.look(TIMEOUTS)
    assert (triton.asked, server.models) == (["vision"], {"vision": True})
    triton.silent = {"vision"}
    await server.look(TIMEOUTS)
    assert server.models == {"vision": False}
