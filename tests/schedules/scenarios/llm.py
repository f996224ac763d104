"""Schedules of the whole llm service: scheduler, cache, sharing, cancellation, sending and closing."""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from tests.llm.doubles.engine_thread import start_thread
from tests.llm.doubles.sinks import counts
from tests.schedules.play import Drawn, Scenario
from tests.schedules.scenarios.lookups import check_cache
from tests.schedules.scenarios.misbehaving import Client, Engine, PlayedAnswers, TritonClient, real_cache
from tests.schedules.world import World
from trimodal.cache.answers import AnswerCache
from trimodal.errors import RequestError
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import CancelRequest, Terms
from trimodal.llm.service import LlmService
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics

TIERS = """
[tier.standard]
[tier.premium]
priority = 10
ttft_deadline_ms = 100
deadline_ms = 400
itl_bound_ms = 50
[tier.batch]
priority = -10
kv_share = 0.4
max_output_tokens = 50
"""
FRONTEND = tuple(f"trimodal.llm.frontend.{name}" for name in ("dispatcher", "registry", "response_sender"))


class Llm(Scenario):
    """A service, threads that send it requests and cancel them, and perhaps one that closes it.

    Attributes:
        losses: seconds that a first engine lives; later_losses: another one.
        unopened, faults, closes, keyed: probability that an engine does not open again, that an output of it
            is spoilt, that the service is closed in the middle, that a request has a cancel key.
        cancels: by key, about. prompts: "" is one that nobody else sends.
        gaps, slow_s: seconds between requests, and that a client takes for a response.
    """

    switching: ClassVar[tuple[str, ...]] = ("trimodal.llm.service", *FRONTEND)
    submitters: ClassVar[int] = 3
    requests: ClassVar[int] = 4
    caches: ClassVar[tuple[str, ...]] = ("none", "played", "real")
    losses: ClassVar[tuple[float, ...]] = (1e9, 1e9, 0.01, 0.03)
    later_losses: ClassVar[tuple[float, ...]] = (1e9,)
    unopened: ClassVar[tuple[float, ...]] = (0.0,)
    faults: ClassVar[float] = 0.002
    closes: ClassVar[float] = 0.1
    cancels: ClassVar[int] = 3
    keyed: ClassVar[float] = 0.3
    prompts: ClassVar[tuple[str, ...]] = ("hello", "hello ", "again", "long " * 30, "")
    lengths: ClassVar[tuple[int, ...]] = (1, 2, 5, 12, 30)
    slow_s: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0, 0.01)
    gaps: ClassVar[tuple[float, ...]] = (0.0, 0.002, 0.01)
    tenants: ClassVar[tuple[str, ...]] = ("", "", "", "acme")
    stops: ClassVar[tuple[tuple[str, ...], ...]] = ((), (), ("fox",))
    client: ClassVar[type[Client]] = Client

    def __init__(self, world: World) -> None:
        super().__init__(world)
        draw = self.draw
        self.settings = settings_of(draw.choice([2, 24]), draw.choice(["deadline", "deadline", "fifo"]))
        self.engines: list[Engine] = []
        self._unopened = draw.choice(self.unopened)
        self.metrics = MemoryMetrics()
        drawn = random.Random(draw.random())
        kinds: dict[str, Callable[[], Any]] = {
            "none": lambda: None,
            "played": lambda: PlayedAnswers(drawn),
            "real": lambda: real_cache(drawn, self.metrics),
            "audited": lambda: real_cache(drawn, self.metrics, share=0.7),
        }
        self.answers = kinds[draw.choice(self.caches)]()
        self.clients: list[Client] = []
        self.keys: list[str] = []
        self.service = LlmService(
            self.settings,
            LlmMetrics(self.metrics, "llm"),
            self._open,
            answers=self.answers,
            fingerprint="0123456789abcdef",
        )

    def _open(self, settings: LlmSettings) -> Any:
        if self.engines and self.draw.random() < self._unopened:
            raise Drawn("it does not open")
        lives = self.draw.choice(self.later_losses if self.engines else self.losses)
        self.engines.append(Engine(settings, random.Random(self.draw.random()), lives, self.faults))
        return start_thread(self.engines[-1])

    def run(self) -> None:
        tasks = [(self._send, random.Random(self.draw.random())) for _ in range(self.submitters)]
        if self.cancels:
            tasks.append((self._cancel, random.Random(self.draw.random())))
        threads = [threading.Thread(target=task, args=(draw,)) for task, draw in tasks]
        if self.draw.random() < self.closes:
            threads.append(threading.Thread(target=self._close))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in self.clients:
            if not client.refused:
                client.wait()

    def _send(self, draw: random.Random) -> None:
        left = self.requests
        while left > 0:
            for _ in range(draw.choice([1, 1, 3])):
                left -= 1
                client = self.client(draw, draw.choice(self.slow_s))
                request = self._request(draw)
                self.clients.append(client)
                try:
                    self.service.submit(request, client)
                except RequestError as error:
                    client.refused = error
            time.sleep(draw.choice(self.gaps))

    def _request(self, draw: random.Random) -> GenerationRequest:
        key = ""
        if draw.random() < self.keyed:
            fresh = not self.keys or draw.random() < 0.8
            key = f"{draw.getrandbits(64):016x}" if fresh else draw.choice(self.keys)
            self.keys.append(key)
        control = draw.choice([(), (), (), (), ("no-cache",), ("no-store",), ("store",)])
        terms = Terms(
            tenant=draw.choice(self.tenants),
            tier=draw.choice(["", "standard", "premium", "batch"]),
            priority=draw.choice([None, None, -20]),
            ttft_deadline_ms=draw.choice([None, None, None, 10, 100]),
            deadline_ms=draw.choice([None, None, None, 10, 50]),
            cache_control=frozenset(control),
            cancel_key=key,
        )
        sampling = Sampling(draw.choice(self.lengths), temperature=draw.choice([0.0, 0.0, 0.0, 0.7]))
        prompt = draw.choice(self.prompts) or f"p{draw.random()}"
        return GenerationRequest(prompt, None, sampling, draw.choice(self.stops), terms=terms)

    def _cancel(self, draw: random.Random) -> None:
        for _ in range(draw.randint(1, 2 * self.cancels)):
            keys = self.keys or ["k" * 16]
            key = draw.choice([keys[-1], draw.choice(keys), f"{draw.getrandbits(64):016x}"])
            told = Client(random.Random(0))
            self.service.submit(CancelRequest(key), told)
            assert told.ends == 1
            time.sleep(draw.choice([0.0, 0.001, 0.004, 0.02]))

    def _close(self) -> None:
        time.sleep(self.draw.choice([0.0, 0.002, 0.01, 0.03]))
        self.service.close()
        self.seen["closed"] += 1

    def check(self) -> None:
        self._settle()
        service = self.service
        registry, scheduler = service._registry, service._dispatcher._scheduler
        assert (registry.states, registry.generations, registry.looking) == ({}, {}, 0)
        assert (registry._by_cancel_key, registry._by_question) == ({}, {})
        assert counts(service) == (0, 0, 0), "running, waiting, reserved KV blocks"
        assert scheduler.admission.reserved_by_tier == {}
        assert (scheduler.admission.reserved, scheduler._dropped) == (set(), {})
        latency = scheduler._latency
        assert (latency.streams, latency.pending, latency._observed) == (0, 0, {})
        service.close()
        if isinstance(self.answers, AnswerCache):
            check_cache(self.answers, self.metrics)
        elif self.answers:
            assert self.answers.threads.unfinished == 0
        for client in self.clients:
            self._check_client(client)
        assert self.total("requests_total") == len(self.clients), "each request is counted once"
        assert (self.total("active_requests"), self.total("queued_requests")) == (0, 0)
        assert all(metric.value >= 0 for metric in self.metrics.series.values())
        self.seen["engine lost"] += len(self.engines) > 1
        self.seen["given up"] += "keeps failing" in service._dispatcher._unavailable

    def _settle(self) -> None:
        """Waits until every thread has done what follows an end."""
        self.world.settle(lambda: self.total("requests_total") >= len(self.clients), 5.0)
        time.sleep(0.05)  # a second end would come now

    def _check_client(self, client: Client) -> None:
        assert client.ends == (0 if client.refused else 1), f"{client.ends} ends"
        assert not client.after_end, "a response after the end"
        if isinstance(client, TritonClient):
            assert client.sender.looks_after_final == 0
            assert client.sender.finals == client.ends
        if client.refused or client.error:
            self.seen["refused" if client.refused else type(client.error).__name__] += 1
            return
        last = client.deltas[-1]
        self.seen[last.finish_reason] += 1
        counted = [delta.completion_tokens for delta in client.deltas]
        assert counted == sorted(counted)
        assert 0 <= last.cached_tokens <= last.prompt_tokens
        assert last.finish_reason in ("stop", "length", "deadline")
        assert last.note
        assert last.note.cache in ("", "exact", "semantic", "coalesced")
        self.seen[last.note.cache or "generated"] += 1
        assert last.note.queue_s >= 0
        assert not last.note.predicted_ttft_s < 0
        # Any piece that is lost, told twice or out of order breaks the script.
        text = client.text.strip("\ufffd")  # of a character that the end cuts
        assert text == "Near." or text in self.settings.fake_answer * 3, f"not the script: {text!r}"

    def total(self, name: str) -> float:
        series = self.metrics.series.items()
        return sum(metric.value for (key, _), metric in series if key == f"trimodal_llm_{name}")


class Scheduling(Llm):
    """Tiers, deadlines, short queues, engines that are lost, opened again and given up."""

    comes_to = ("length", "refused", "Unavailable", "InternalError", "deadline", "engine lost", "given up")
    caches = ("none",)
    losses = (1e9, 0.0, 0.004, 0.01, 0.03)
    later_losses = (1e9, 1e9, 0.0, 0.01)
    unopened = (0.0, 0.0, 0.9)
    faults = 0.01
    prompts = ("hello", "long " * 30, "")


class Caching(Llm):
    """Exact and semantic lookups in a store that is slow and fails."""

    comes_to = ("exact", "semantic", "length")
    switching = (
        *("trimodal.cache.answers", "trimodal.cache.bounded_calls"),
        *("trimodal.cache.embedder", "trimodal.cache.write_behind"),
    )
    caches = ("real", "real", "played")
    prompts = ("hello you", "you hello", "again")
    lengths = (5, 30)
    requests = 8
    keyed = 0.1
    gaps = (0.0, 0.01, 0.05)


class Auditing(Llm):
    """Hits are audited between the requests of clients, which interrupt it."""

    comes_to = ("semantic", "begun", "agreed", "generated")
    switching = (
        *("trimodal.cache.audit.auditor", "trimodal.llm.frontend.idle_audits"),
        "trimodal.llm.frontend.cache_lookup",
    )
    caches = ("audited",)
    prompts = tuple(map(" ".join, itertools.permutations(("hello", "you", "out", "there"))))
    stops = ((" ",),)  # whole answers are kept for paraphrases
    lengths = (30,)
    submitters = 2
    requests = 16
    losses = (1e9, 1e9, 1e9, 0.3)
    keyed = 0.0
    cancels = 0
    closes = 0.05
    gaps = (0.13, 0.3, 0.6)
    tenants = ("",)

    def check(self) -> None:
        super().check()
        audits = self.service._idle_audits
        assert audits
        spent = self._audited("tokens_total")
        assert self.answers.audits._thread.unfinished == 0, "a pair of answers was left behind"
        self.seen["begun"] += spent > 0
        self.seen["agreed"] += self._audited("answers_total", agreement="agreed") > 0

    def _audited(self, name: str, **wanted: str) -> float:
        series = self.metrics.series.items()
        name = f"trimodal_cache_audit_{name}"
        found = ((dict(labels), metric) for (key, labels), metric in series if key == name)
        return sum(metric.value for labels, metric in found if wanted.items() <= labels.items())


class Sharing(Llm):
    """Identical requests join one generation, whose first listener leaves."""

    comes_to = ("coalesced", "Cancelled", "length")
    caches = ("none", "played", "real")
    prompts = ("hello",)
    lengths = (12, 12, 12, 5)
    losses = (1e9, 1e9, 1e9, 0.01)
    gaps = (0.0, 0.001, 0.01)
    requests = 6
    keyed = 0.6
    tenants = ("",)


class Cancelling(Llm):
    """Cancels by key and by leaving at every moment, the last token's too."""

    comes_to = ("Cancelled", "length", "refused")
    caches = ("none", "none", "played")
    prompts = ("hello", "")
    lengths = (1, 2, 3, 5)
    keyed = 1.0
    cancels = 8


class Sending(Llm):
    """Triton's senders, which are slow and refuse what comes after the final response."""

    comes_to = ("Cancelled", "length", "InternalError")
    switching = ("trimodal.triton.responses", *FRONTEND)
    caches = ("none", "played")
    client = TritonClient
    slow_s = (0.0, 0.001, 0.01, 0.05)


class Closing(Llm):
    """The service is closed in the middle of all of that."""

    comes_to = ("closed", "Unavailable", "refused", "length")
    closes = 1.0


@cache
def settings_of(max_queue: int, scheduler: str) -> LlmSettings:
    tiers = Path(tempfile.mkdtemp()) / "tiers.toml"
    tiers.write_text(TIERS)
    return LlmSettings.model_validate(
        {
            "engine": "fake",
            "fake_step_ms": 1.0,
            "fake_prefill_us": 5.0,
            "cancel_poll_ms": 3,
            "tiers": str(tiers),
            "max_num_seqs": 4,
            "num_kv_blocks": 24,
            "max_queue": max_queue,
            "ageing_s": 0.1,
            "scheduler": scheduler,
        }
    )
