"""Load on a language model over gRPC or HTTP, beside its bare engine and its peers; also on its cache."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from trimodal.bench.drive.place import Drive, Measured, Place, client_of, counted, facts, placed
from trimodal.bench.llm.bench import served_settings
from trimodal.bench.llm.peer import Dtype, ask_peer, peer_checkpoint, running_peers
from trimodal.bench.llm.sides import BareEngine, Prompts
from trimodal.bench.load.generator import Run, Send
from trimodal.bench.load.plan import Case
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Result, Side, run_cases, sending
from trimodal.bench.load.statistics import summarise
from trimodal.bench.peers.client import Peer
from trimodal.bench.report.tables import TOKENS
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.questions import Mix, Questions
from trimodal.bench.targets.taking import check
from trimodal.errors import SettingsError
from trimodal.paths import default_repository


@dataclass(frozen=True)
class LlmDrive:
    """What the llm bench is told besides. `cache`: hits and misses of the answer cache are told apart."""

    mix: Mix
    bare: bool = False
    peer_dtypes: Sequence[Dtype] = ()
    peer_checkpoint: Path | None = None
    ignore_eos: bool = False
    cache: bool = False


async def drive_llm(drive: Drive, llm: LlmDrive, models: Sequence[str] = ("llm",)) -> Measured:
    """Runs the load.

    Raises:
        OperatorError: a setting is wrong, a side does not start, or the first request is not answered.
    """
    if drive.url and (llm.bare or llm.peer_dtypes):
        option = "--bare" if llm.bare else "--peer"
        raise SettingsError(f"{option} runs on this machine's own model: leave --url out")
    # A random prompt is taken as it is; lines of a file are questions, as users send them.
    plain = {} if llm.mix.lines else {"apply_chat_template": "false"}
    changes = {**plain, **drive.changes.get("llm", {})}
    drive = replace(drive, changes={**drive.changes, "llm": changes})
    local = None
    if llm.bare or llm.peer_dtypes:
        local = served_settings(default_repository(), changes)
    checkpoint = peer_checkpoint(local, llm.peer_checkpoint) if local and llm.peer_dtypes else None
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(placed(drive, *models))
        served = _Served(drive, llm, place)
        stack.push_async_callback(served.aclose)
        await served.open()
        sides: dict[str, Side] = {"served": sending(drive.plan, served.sender, drive.stop)}
        prompts = Prompts(local, None, 0) if local else None
        if llm.bare and local and prompts:
            bare = _Bare(stack.enter_context(closing(BareEngine(local))), prompts, served)
            sides["bare"] = sending(drive.plan, bare.sender, drive.stop)
        if checkpoint and prompts:
            peers = await stack.enter_async_context(running_peers(checkpoint.directory, llm.peer_dtypes))
            for name, peer in peers.items():
                other = _PeerSide(peer, prompts, served)
                sides[name] = sending(drive.plan, other.sender, drive.stop)
        results = await run_cases(drive.plan, sides, counted=counted(place), tell=drive.tell)
    if llm.cache:
        results = served.by_hit(results)
    return Measured("Language model", TOKENS, results, facts(drive, place, served.described()))


async def drive_cache(drive: Drive, llm: LlmDrive, layer: str) -> Measured:
    """Load on a server whose answer cache is on, of which hits and misses are told apart.

    Args:
        layer: "exact" or "semantic", of a server that is started.
    """
    with tempfile.TemporaryDirectory(prefix="trimodal-bench-") as folder:
        store = str(Path(folder) / "answers.sqlite")
        changes = {"cache": layer, "cache_store": store, **drive.changes.get("llm", {})}
        drive = replace(drive, changes={**drive.changes, "llm": changes})
        models = ("llm", "embedding", "judge") if layer == "semantic" else ("llm",)
        found = await drive_llm(drive, replace(llm, cache=True), models)
    return replace(found, title="Language model with its answer cache")


class _Served:
    """The served side: every case and round has questions of its own, which all sides are asked."""

    def __init__(self, drive: Drive, llm: LlmDrive, place: Place) -> None:
        self._drive = drive
        self._llm = llm
        self._http = drive.http or drive.url.startswith("http")
        self._url = drive.url if drive.url else f"http://{place.http_url}"
        self._model = drive.model or "llm"
        self._client = None if self._http else client_of(drive, place)
        self._questions = Questions(llm.mix, drive.plan.seed)
        self._first = self._target()
        self._targets: dict[tuple[str, int], GrpcLlm | HttpLlm] = {}
        self.lengths: dict[tuple[str, int], dict[int, int]] = {}

    async def open(self) -> None:
        """Learns how long words are, and finds out whether anything answers. Raises: ServerError."""
        await check(self._first)
        await self._questions.calibrate(self._first.count)

    def questions(self, case: Case, number: int) -> Questions:
        """Those of a round."""
        seed = f"{self._drive.plan.seed} {case.name} {number}"
        questions = self._questions.reseeded(seed)
        questions.prepare(case.expected)
        return questions

    def sender(self, case: Case, number: int) -> Send:
        target = self._targets[case.name, number] = self._first.asking(self.questions(case, number))
        lengths = self.lengths.setdefault((case.name, number), {})

        async def send(request: int) -> Record:
            record = await target.send(request)
            lengths[request] = record.output_tokens
            return record

        return send

    def by_hit(self, results: Sequence[Result]) -> list[Result]:
        """Splits each result by whether the answer came from the cache."""
        found: list[Result] = []
        for result in results:
            found.append(result)
            for side in ("hits", "misses"):
                runs = [self._part(result, number, run, side) for number, run in enumerate(result.runs)]
                if any(run.records for run in runs):
                    plan = self._drive.plan
                    found.append(Result(result.case, side, runs, {}, summarise(runs, plan.slo)))
        return found

    def _part(self, result: Result, number: int, run: Run, side: str) -> Run:
        target = self._targets[result.case.name, number]
        hits = target.hits if isinstance(target, GrpcLlm) else {}
        chosen = (record for record in run.records if (record.number in hits) == (side == "hits"))
        return replace(run, records=tuple(chosen))

    def described(self) -> list[tuple[str, str]]:
        mix = self._llm.mix
        way = "HTTP" if self._http else "gRPC"
        asked = f"{mix.prompt.text} prompt and {mix.answer.text} answer tokens, over {way}"
        if mix.trace:
            asked = f"lengths of the trace, over {way}"
        shares = {
            f"begin with the same {mix.shared_tokens} tokens": mix.shared_share if mix.shared_tokens else 0.0,
            "are left by the client": mix.cancel_share,
            "were asked before": mix.repeat_share,
        }
        asked += "".join(f"; {share:.0%} {what}" for what, share in shares.items() if share)
        return [("model", self._model), ("requests", asked)]

    def _target(self) -> GrpcLlm | HttpLlm:
        timeout = self._drive.plan.timeout
        if self._client:
            return GrpcLlm(self._client, self._questions, model=self._model, timeout=timeout)
        return HttpLlm(
            self._url,
            self._questions,
            model=self._model,
            key=self._drive.key,
            timeout=timeout,
            ignore_eos=self._llm.ignore_eos,
        )

    async def aclose(self) -> None:
        if isinstance(self._first, HttpLlm):
            await self._first.aclose()
        if self._client:
            await self._client.aclose()


class _Bare:
    """The engine without a server, asked the same with the same arrivals."""

    def __init__(self, engine: BareEngine, prompts: Prompts, served: _Served) -> None:
        self._engine, self._prompts, self._served = engine, prompts, served

    def sender(self, case: Case, number: int) -> Send:
        questions = self._served.questions(case, number)

        async def send(request: int) -> Record:
            question = questions.at(request)
            return await self._engine.ask(self._prompts.token_ids(question.text), question.max_tokens)

        return send


class _PeerSide:
    """A peer, which makes as many tokens as the served side made of the same question."""

    def __init__(self, peer: Peer, prompts: Prompts, served: _Served) -> None:
        self._peer, self._prompts, self._served = peer, prompts, served

    def sender(self, case: Case, number: int) -> Send:
        questions = self._served.questions(case, number)
        lengths: Mapping[int, int] = self._served.lengths.get((case.name, number), {})

        async def send(request: int) -> Record:
            question = questions.at(request)
            ids = await asyncio.to_thread(self._prompts.token_ids, question.text)
            return await ask_peer(self._peer, ids, lengths.get(request) or question.max_tokens)

        return send
