"""Tests a language model over gRPC or HTTP, beside its bare engine and other servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from trimodal.bench.bare.llm import BareEngine, served_settings
from trimodal.bench.load.generator import Send
from trimodal.bench.load.plan import Case
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Side, run_cases, sending
from trimodal.bench.report import TOKENS
from trimodal.bench.scenarios.server import (
    LoadTest,
    Measurement,
    ServerUnderTest,
    client_of,
    facts,
    server_under_test,
)
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.questions import Mix, Question, Questions, listed
from trimodal.bench.targets.taking import check
from trimodal.errors import SettingsError


@dataclass(frozen=True)
class LlmScenario:
    """What is asked of a language model, and what it is held against.

    Attributes:
        bare: also its engine alone.
        beside: addresses of other servers, of OpenAI's API or generate_stream.
    """

    mix: Mix
    bare: bool = False
    beside: Sequence[str] = ()


async def run_llm(test: LoadTest, scenario: LlmScenario) -> Measurement:
    """Runs the load.

    Raises:
        OperatorError: a setting is wrong, a side does not start, or the first request is not answered.
    """
    if test.url and scenario.bare:
        raise SettingsError("--bare runs on this machine's own model: leave --url out")
    async with AsyncExitStack() as stack:
        if not test.url:
            test = replace(test, changes={**test.changes, "llm": _changes(test, scenario)})
        server = await stack.enter_async_context(server_under_test(test, "llm"))
        served = _Served(test, scenario, server)
        stack.push_async_callback(served.aclose)
        await served.open()
        sides: dict[str, Side] = {"served": sending(test.plan, served.sender, test.stop)}
        if scenario.bare:
            settings = served_settings(server.models["llm"])
            engine = stack.enter_context(closing(await asyncio.to_thread(BareEngine, settings)))

            def alone(case: Case, number: int) -> Send:
                return engine.sender(served.questions(case, number))

            sides["bare"] = sending(test.plan, alone, test.stop)
        for url in scenario.beside:
            other = await _open_beside(url, test)
            stack.push_async_callback(other.aclose)
            host = urlsplit(url).netloc
            sides[url if host in sides else host] = sending(test.plan, _beside(other, served), test.stop)
        results = await run_cases(test.plan, sides, test.tell)
    return Measurement("Language model", TOKENS, results, facts(test, server, served.described()))


def _changes(test: LoadTest, scenario: LlmScenario) -> dict[str, str]:
    """Parameters of the model; those that were given win."""
    # A random prompt is taken as it is; lines of a file are questions, as users send them.
    changes = {} if scenario.mix.lines else {"apply_chat_template": "false"}
    return changes | dict(test.changes.get("llm", {}))


class _Served:
    """The served side: every case and round has questions of its own, which all sides are asked."""

    def __init__(self, test: LoadTest, scenario: LlmScenario, server: ServerUnderTest) -> None:
        self._test = test
        self._scenario = scenario
        self._http = test.url.startswith("http")
        self._model = test.model or "llm"
        self._client = None if self._http else client_of(test, server)
        self._questions = Questions(scenario.mix, test.plan.seed)
        self._first = self._target()
        self._lengths: dict[tuple[str, int], dict[int, int]] = {}

    async def open(self) -> None:
        """Learns how long words are, and finds out whether anything answers. Raises: ServerError."""
        await check(self._first.send)
        if not self._scenario.mix.lines:
            await self._questions.calibrate(self._first.count)

    def questions(self, case: Case, number: int) -> Questions:
        """Those of a round."""
        questions = self._questions.reseeded(f"{self._test.plan.seed} {case.name} {number}")
        questions.prepare(case.expected)
        return questions

    def lengths(self, case: Case, number: int) -> Mapping[int, int]:
        """Number of a request of a round → tokens of its answer."""
        return self._lengths.get((case.name, number), {})

    def sender(self, case: Case, number: int) -> Send:
        target = self._first.asking(self.questions(case, number))
        lengths = self._lengths.setdefault((case.name, number), {})

        async def send(request: int) -> Record:
            record = await target.send(request)
            lengths[request] = record.output_tokens
            return record

        return send

    def described(self) -> list[tuple[str, str]]:
        mix = self._scenario.mix
        prompt = f"{len(mix.lines)} lines" if mix.lines else f"{mix.prompt.text} prompt"
        workload = f"{prompt} and {mix.answer.text} answer tokens, over {'HTTP' if self._http else 'gRPC'}"
        return [("model", self._model), ("requests", workload)]

    def _target(self) -> GrpcLlm | HttpLlm:
        timeout = self._test.plan.timeout
        if self._client:
            return GrpcLlm(self._client, self._questions, model=self._model, timeout=timeout)
        key = self._test.key
        return HttpLlm(self._test.url, self._questions, model=self._model, key=key, timeout=timeout)

    async def aclose(self) -> None:
        if isinstance(self._first, HttpLlm):
            await self._first.aclose()
        if self._client:
            await self._client.aclose()


async def _open_beside(url: str, test: LoadTest) -> HttpLlm:
    """Another server. One that knows `ignore_eos` makes answers of a given length.

    Raises:
        OperatorError: it is no such address, or does not answer.
    """
    key = "" if test.url.startswith("http") else test.key  # that one is another server's
    target = HttpLlm(
        url,
        listed([Question("one two three", 8)]),
        model=test.model or "llm",
        key=key,
        timeout=test.plan.timeout,
        keep_alive=False,
        ignore_eos=True,
    )
    try:
        await target.choose_model()
        if (await target.send(0)).outcome == "invalid_arg":
            target.ignore_eos = False
        await check(target.send)
    except BaseException:
        await target.aclose()
        raise
    return target


def _beside(target: HttpLlm, served: _Served) -> Callable[[Case, int], Send]:
    """Another server, which is asked the same and for as many tokens as the served side made of it."""

    def sender(case: Case, number: int) -> Send:
        questions, lengths = served.questions(case, number), served.lengths(case, number)

        def as_long(request: int) -> Question:
            question = questions(request)
            return replace(question, max_tokens=lengths.get(request) or question.max_tokens)

        return target.asking(as_long).send

    return sender
