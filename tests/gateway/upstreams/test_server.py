"""What a look at one Triton finds out."""

from __future__ import annotations

import asyncio

import pytest

from tests.doubles.waiting import until
from trimodal.client.errors import ConnectionLost
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.fake import FakeTransport, labelled, scripted
from trimodal.client.values import Model
from trimodal.errors import InternalError, TrimodalError
from trimodal.gateway.upstreams.server import Upstream

TIMEOUTS = Timeouts(connect=60)


async def looked(server: Upstream) -> None:
    """A look, and the answers to it."""
    await server.look(TIMEOUTS)
    await server.answered(20)


class Counted(FakeTransport):
    """Models with counts of inferences, some of which answer no question, and some only when they `go` on."""

    def __init__(self, **inferences: int) -> None:
        super().__init__(**dict.fromkeys(inferences, labelled(("a", 1.0))))
        self.inferences = inferences
        self.silent: set[str] = set()
        self.held: set[str] = set()
        self.go = asyncio.Event()
        self.asked: list[str] = []

    async def models(self, timeouts: Timeouts) -> list[Model]:
        await super().models(timeouts)
        return [Model(name, "1", count) for name, count in self.inferences.items()]

    async def ready(self, model: str, timeouts: Timeouts) -> bool:
        name = model.partition("@")[0]
        if name in self.held:
            await self.go.wait()
        self.asked.append(name)
        return name not in self.silent


async def test_a_model_that_answers_nothing_is_dead_and_so_is_who_needs_it() -> None:
    triton = Counted(vision=0, vision_preprocess=5, vision_rank=0, llm=1)
    server = Upstream("a:1", triton)
    await looked(server)
    assert server.models == {"vision": True, "vision_preprocess": True, "vision_rank": True, "llm": True}
    triton.silent = {"vision_rank"}
    await looked(server)
    assert server.models == {"vision": False, "vision_preprocess": True, "vision_rank": False, "llm": True}
    triton.silent = set()
    await looked(server)
    assert all(server.models.values())


async def test_a_model_that_has_answered_since_the_last_look_is_not_asked() -> None:
    triton = Counted(speech=1, embedding=1)
    server = Upstream("a:1", triton)
    await looked(server)
    assert triton.asked == ["speech", "embedding"]
    triton.asked.clear()
    triton.inferences = {"speech": 5, "embedding": 2}  # the question itself counts as one
    triton.silent = {"speech"}  # as one that is busy for long
    await looked(server)
    assert (triton.asked, server.models["speech"]) == (["embedding"], True)
    await looked(server)
    assert server.models["speech"] is False


async def test_what_a_decoupled_model_refuses_counts_as_inferences_and_is_no_answer() -> None:
    triton = Counted(llm=1, assistant=1)
    server = Upstream("a:1", triton)
    await looked(server)
    triton.inferences, triton.silent = {"llm": 9, "assistant": 9}, {"llm", "assistant"}
    await looked(server)
    assert server.models == {"llm": False, "assistant": False}


async def test_a_model_that_hangs_delays_no_other() -> None:
    triton = Counted(embedding=0, llm=1, vision=0)
    server = Upstream("a:1", triton)
    await looked(server)
    triton.held, triton.silent = {"vision"}, {"llm"}
    await server.look(TIMEOUTS)
    await until(lambda: not server.models["llm"])
    assert server.models["vision"], "it is asked still"
    triton.silent, triton.asked = set(), []
    await server.look(TIMEOUTS)
    await until(lambda: server.models["llm"])
    assert sorted(triton.asked) == ["embedding", "llm"], "one question at a time"
    triton.go.set()
    await server.answered(20)
    assert all(server.models.values())
    triton.go.clear()
    await server.look(TIMEOUTS)
    await server.aclose()
    assert not server._asking
    assert triton.closed


async def test_a_model_that_hangs_beyond_the_bound_does_not_answer() -> None:
    triton = Counted(embedding=0, vision=0)
    triton.held = {"vision"}
    server = Upstream("a:1", triton)
    await server.look(Timeouts(connect=0.02, silence=0.02))
    await server.answered(20)
    assert server.models == {"embedding": True, "vision": False}


async def test_a_model_that_is_busy_with_one_run_is_late_and_not_down() -> None:
    triton = Counted(speech=1, speech_recognize=1, embedding=1, llm=1)
    server = Upstream("a:1", triton)
    await looked(server)
    triton.held = {"speech_recognize", "llm"}  # the llm answers beside its work, or not at all
    bounds = Timeouts(connect=0.02)
    await server.look(bounds)
    await until(lambda: server.is_late("speech_recognize"))
    assert (server.is_late("speech"), server.is_late("embedding")) == (True, False)
    await until(lambda: not server.models["llm"])
    assert server.models == {"speech": True, "speech_recognize": True, "embedding": True, "llm": False}
    triton.inferences["speech_recognize"] = 9  # the run is over, and others wait before the question
    await server.look(bounds)
    await until(lambda: not server.is_late("speech"))
    assert server.models["speech_recognize"]
    triton.go.set()
    await looked(server)
    await server.aclose()


async def test_a_version_that_is_loaded_later_has_its_place_with_its_first_answer() -> None:
    triton = FakeTransport(llm=scripted("a"), versions={"llm": ("9",)})
    may_answer, asked = asyncio.Event(), triton.ready

    async def ready(model: str, timeouts: Timeouts) -> bool:
        if model not in ("llm@9", "llm@11"):
            await may_answer.wait()
        return await asked(model, timeouts)

    triton.ready = ready  # type: ignore[method-assign]
    server = Upstream("a:1", triton)
    await looked(server)
    triton._versions = {"llm": ("9", "10", "11")}
    triton.functions["vision"] = labelled(("a", 1.0))  # as one that a reload took out
    await server.look(TIMEOUTS)
    await until(lambda: "11" in server.versions["llm"])
    assert server.versions == {"llm": {"9": True, "11": True}}
    server.failed("llm@10", InternalError("gone"))
    assert (server.models, server.answers("llm", "10")) == ({"llm": True}, False), "not known yet"
    await server.look(TIMEOUTS)
    may_answer.set()
    await server.answered(20)
    assert server.versions == {"llm": {"9": True, "10": True, "11": True}, "vision": {"1": True}}
    assert [*server.versions["llm"]] == ["9", "10", "11"], "the highest is the last"


@pytest.mark.parametrize("error", [InternalError("its process died"), ConnectionLost("it went away"), None])
async def test_what_was_asked_before_a_failure_revives_nothing(error: TrimodalError | None) -> None:
    triton = Counted(vision=0)
    server = Upstream("a:1", triton)
    await looked(server)
    triton.held = {"vision"}
    await server.look(TIMEOUTS)
    (question,) = server._asking.values()
    triton.inferences = {"vision": 9}  # what it answered before counts as little
    if error:
        server.failed("vision", error)
    else:
        triton.reachable = False
        await server.look(TIMEOUTS)
        triton.reachable = True
    triton.go.set()
    await asyncio.wait([question])
    assert (server.models, server._asking) == ({"vision": False}, {})
    triton.go.clear()
    if error:
        await server.look(TIMEOUTS)
        assert server.models == {"vision": False}, "it is asked anew"
    triton.go.set()
    await server.look(TIMEOUTS)
    await server.answered(20)
    assert server.models == {"vision": True}


async def test_versions_are_asked_and_fail_one_by_one() -> None:
    triton = FakeTransport(llm=scripted("a"), versions={"llm": ("1", "2")})
    silent = {"llm@2"}

    async def ready(model: str, timeouts: Timeouts) -> bool:
        return model not in silent

    triton.ready = ready  # type: ignore[method-assign]
    server = Upstream("a:1", triton)
    await looked(server)
    assert server.versions == {"llm": {"1": True, "2": False}}
    assert (server.answers("llm", "1"), server.answers("llm")) == (True, False), "the highest, as Triton does"
    silent.clear()
    await looked(server)
    server.failed("llm@1", InternalError("gone"))
    assert server.versions == {"llm": {"1": False, "2": True}}
    server.failed("llm", InternalError("gone"))
    assert server.versions == {"llm": {"1": False, "2": False}}


async def test_a_server_that_is_not_reached_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trimodal")
    triton = Counted(llm=1)
    server = Upstream("a:1", triton)
    for triton.reachable in (False, False, True, True, False):
        await looked(server)
    lost, found = "a:1 is not reached: no server at nowhere", "a:1 is reached"
    told = [record.getMessage() for record in caplog.records if "reached" in record.getMessage()]
    assert told == [lost, found, lost]


async def test_a_server_that_is_gone_keeps_its_models_names() -> None:
    triton = Counted(llm=1, embedding=1)
    server = Upstream("a:1", triton)
    await looked(server)
    triton.reachable = False
    await looked(server)
    assert server.models == {"llm": False, "embedding": False}
    triton.reachable, triton.inferences = True, {"llm": 0}
    await looked(server)
    assert server.models == {"llm": True}, "it was started anew, without the other one"


async def test_a_question_that_fails_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(model: str, timeouts: Timeouts) -> bool:
        raise InternalError("no idea")

    triton = FakeTransport(llm=scripted("a"))
    monkeypatch.setattr(triton, "ready", fails)
    server = Upstream("a:1", triton)
    await looked(server)
    assert server.models == {"llm": False}


async def test_a_model_without_steps_of_its_own_is_asked_itself() -> None:
    triton = Counted(vision=0)
    server = Upstream("a:1", triton)
    await looked(server)
    assert (triton.asked, server.models) == (["vision"], {"vision": True})
    triton.silent = {"vision"}
    await looked(server)
    assert server.models == {"vision": False}
