"""Operators' calls: adapters that come and go, an engine that sleeps."""

import errno
import hashlib
import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.llm.doubles.engine_thread import PlayedEngines, start_thread
from tests.llm.doubles.sinks import Collector, FakeServer, counts, eventually
from trimodal.errors import ArtefactError, InvalidArgument, RequestError, Unavailable
from trimodal.llm.engine_core.client import EngineCoreClient, start_process
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import Adapter, EngineCall, EngineLost, EngineRequest, Output, Sampling
from trimodal.llm.frontend import operator_calls
from trimodal.llm.request.operator import OperatorCall
from trimodal.llm.request.request import GenerationRequest, read_request
from trimodal.llm.request.terms import ProbeRequest
from trimodal.llm.settings import LlmSettings

KEY = "the operator's"
HASH = hashlib.sha256(KEY.encode()).hexdigest()


@pytest.fixture
def adapters(tmp_path: Path) -> dict[str, object]:
    """Settings of a server with a directory of three adapters."""
    for name in ("pirate", "poet", "clerk"):
        (tmp_path / "lora" / name).mkdir(parents=True)
        (tmp_path / "lora" / name / "adapter_config.json").write_text("{}")
    return {"version_directory": tmp_path}


def operate(server: FakeServer, name: str, lora_name: str = "", level: int = 1) -> Collector:
    return server.submit(OperatorCall(name, lora_name, level)).wait()  # type: ignore[arg-type]


def ask(server: FakeServer, lora_name: str = "", max_tokens: int = 20) -> Collector:
    return server.submit(GenerationRequest("hello", None, Sampling(max_tokens, lora_name=lora_name)))


def told(server: FakeServer) -> list[str]:
    return list(json.loads(server.submit(ProbeRequest()).wait().text).get("adapters", {}))


def known(server: FakeServer) -> list[str]:
    """The adapters, none while there is no engine."""
    try:
        return sorted(told(server))
    except RequestError:
        return []


def test_an_answer_of_an_adapter_is_nobody_elses(adapters: dict[str, object]) -> None:
    """Loaded anew under its old name it is another one, for the engine's caches too."""
    seen: list[EngineCall] = []

    class Watched(FakeEngine):
        def call(self, call: EngineCall) -> None:
            seen.append(call)
            super().call(call)

    with FakeServer(kind=Watched, **adapters) as server:
        for name in ("load_lora_adapter", "unload_lora_adapter", "load_lora_adapter"):
            operate(server, name, "poet")
    first, gone, second = (call.adapter for call in seen)
    assert first
    assert gone
    assert second
    assert (first.id == gone.id, first.id == second.id, first.path == second.path) == (True, False, True)


def test_no_adapter_of_the_fake_engine_answers_as_the_model_alone() -> None:
    """One did whose path's bytes came to a multiple of the script's length."""
    settings = LlmSettings(engine="fake", fake_step_ms=0, fake_prefill_us=0)
    engine, script = FakeEngine(settings), len(settings.fake_answer.encode())
    for id in range(script + 1):
        adapter = Adapter("poet", id, "a" * id) if id else None
        engine.add(EngineRequest(id, [1], Sampling(6), adapter=adapter))
    answers: dict[int, list[int]] = defaultdict(list)
    while engine.has_work():
        for output in engine.step():
            answers[output.id] += output.token_ids
    assert answers[0] not in [answers[id] for id in range(1, script + 1)]


def test_adapters_of_the_settings_are_there_again_after_a_crash(adapters: dict[str, object]) -> None:
    crashes = iter([60, 0, 0])

    def start(settings: LlmSettings) -> EngineCoreClient:
        return start_process(settings.model_copy(update={"fake_crash_after": next(crashes)}))

    with FakeServer(start=start, lora_modules="pirate", **adapters) as server:
        eventually(lambda: told(server) == ["pirate"])
        operate(server, "load_lora_adapter", "poet")
        assert isinstance(ask(server, "poet", max_tokens=1000).wait().error, Unavailable)

        eventually(lambda: known(server) == ["pirate", "poet"], 60)
        assert ask(server, "poet").wait().deltas[-1].finish_reason == "length"


def test_a_request_that_waits_for_a_dead_engines_adapter_ends_and_others_go_on_waiting(
    adapters: dict[str, object],
) -> None:
    """The next engine was handed it with the number of the old one's adapter, even of one unloaded since."""
    engines = PlayedEngines()
    with FakeServer(start=engines.start, lora_modules="pirate", max_num_seqs=1, **adapters) as server:
        eventually(lambda: known(server) == ["pirate"])
        with engines.paused():
            running, waiting, other = ask(server), ask(server, "pirate"), server.ask("another")
            eventually(lambda: counts(server.service)[:2] == (1, 2))
            engines.lose()
        died = "the engine that had this {} died; retry after 2 s"
        assert str(running.wait().error) == died.format("request")
        assert str(waiting.wait().error) == died.format("request's adapter")
        assert other.wait().deltas[-1].finish_reason == "length"


class SlowCalls(FakeEngine):
    """Ends no call before it is let."""

    def __init__(self, settings: LlmSettings) -> None:
        super().__init__(settings)
        self.calls: list[EngineCall] = []
        self.lost = self.open = False

    def call(self, call: EngineCall) -> None:
        self.calls.append(call)
        if self.open:
            super().call(call)

    def check(self) -> None:
        if self.lost:
            raise EngineLost("it is gone")


def test_adapters_survive_an_engine_that_dies_before_it_has_loaded_them(adapters: dict[str, object]) -> None:
    engines: list[SlowCalls] = []

    def start(settings: LlmSettings) -> EngineCoreClient:
        engines.append(SlowCalls(settings))
        engines[-1].open = len(engines) == 3
        return start_thread(engines[-1])

    with FakeServer(start=start, lora_modules="pirate poet", **adapters) as server:
        for number in (0, 1):
            eventually(lambda number=number: len(engines) > number and len(engines[number].calls) == 2)  # type: ignore[misc]
            engines[number].lost = True
        eventually(lambda: len(engines) == 3 and known(server) == ["pirate", "poet"])


def test_an_adapter_that_is_being_loaded_is_no_wrong_name(adapters: dict[str, object]) -> None:
    with FakeServer(kind=SlowCalls, lora_modules="pirate", **adapters) as server:
        (engine,) = server.engines
        eventually(lambda: len(engine.calls) == 1)
        assert json.loads(server.submit(ProbeRequest()).wait().text)["loading"] == ["pirate"]
        with pytest.raises(Unavailable, match="^lora_name is 'pirate', which is being loaded$"):
            ask(server, "pirate")
        with pytest.raises(InvalidArgument, match="lora_name is 'poet', which is not loaded: none is"):
            ask(server, "poet")


def test_an_adapter_that_cannot_be_read_when_the_engine_opens_anew_is_lost_alone_until_it_can(
    adapters: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole model stayed unavailable; then that adapter did, until an operator loaded it."""
    monkeypatch.setattr(operator_calls, "_AGAIN_S", 0.01)
    there = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent.name == "pirate":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return there(path)

    engines = PlayedEngines()
    with FakeServer(start=engines.start, lora_modules="pirate poet", **adapters) as server:
        eventually(lambda: known(server) == ["pirate", "poet"])
        monkeypatch.setattr(Path, "is_file", is_file)
        engines.lose()
        eventually(lambda: known(server) == ["poet"])
        with pytest.raises(Unavailable, match="^lora_name is 'pirate', which is being loaded$"):
            ask(server, "pirate")
        monkeypatch.setattr(Path, "is_file", there)
        eventually(lambda: known(server) == ["pirate", "poet"])
        monkeypatch.setattr(Path, "is_file", is_file)
        engines.lose()
        eventually(lambda: known(server) == ["poet"])
        refusal = "^lora_name is 'pirate': pirate/adapter_config.json in the directory of adapters: Stale"
        with pytest.raises(InvalidArgument, match=refusal):
            operate(server, "load_lora_adapter", "pirate")
        with pytest.raises(InvalidArgument, match="^lora_name is 'pirate', which is not loaded: poet is$"):
            ask(server, "pirate")


def test_an_adapter_is_not_loaded_twice_at_once(adapters: dict[str, object]) -> None:
    """The first of them stayed in the engine for good."""
    with FakeServer(kind=SlowCalls, **adapters) as server:
        call = OperatorCall("load_lora_adapter", "poet")
        server.submit(call)
        with pytest.raises(InvalidArgument, match="lora_name is 'poet', which is loaded already"):
            server.submit(call)


def test_a_call_ends_with_the_server(adapters: dict[str, object]) -> None:
    with FakeServer(kind=SlowCalls, **adapters) as server:
        sink = server.submit(OperatorCall("sleep"))
    assert str(sink.wait(5).error) == "the server is shutting down"


def test_a_wake_up_that_fails_puts_nobody_to_sleep() -> None:
    class Failing(FakeEngine):
        def call(self, call: EngineCall) -> None:
            self._called.append(Output(call.id, [], "error", error="no"))

    with FakeServer(kind=Failing) as server:
        for name in ("wake_up", "sleep"):
            assert str(operate(server, name).error) == f"{name}: no"
            assert ask(server).wait().deltas[-1].finish_reason == "length"


@pytest.mark.parametrize(
    ("name", "lora_name", "sentence"),
    [
        (
            "load_lora_adapter",
            "sailor",
            "there is no sailor/adapter_config.json in the directory of adapters",
        ),
        ("load_lora_adapter", "../lora/poet", "lora_name is '../lora/poet': there is no"),
        ("load_lora_adapter", "x" * 300, "^lora_name has 300 characters: at most 128$"),
        ("unload_lora_adapter", "x" * 129, "^lora_name has 129 characters: at most 128$"),
        ("load_lora_adapter", "pirate", "lora_name is 'pirate', which is loaded already"),
        ("unload_lora_adapter", "poet", "lora_name is 'poet', which is not loaded: pirate is"),
    ],
)
def test_a_wrong_call_is_named(adapters: dict[str, object], name: str, lora_name: str, sentence: str) -> None:
    with FakeServer(**adapters) as server:
        operate(server, "load_lora_adapter", "pirate")
        with pytest.raises(InvalidArgument, match=sentence):
            operate(server, name, lora_name)


def test_a_server_does_not_start_without_an_adapter_of_its_settings(adapters: dict[str, object]) -> None:
    with pytest.raises(ArtefactError, match="parameter 'lora_modules': lora_name is 'sailor': there is no"):
        FakeServer(lora_modules="poet sailor", **adapters)


def test_a_sleeping_engine_takes_nothing_and_a_woken_one_answers() -> None:
    with FakeServer(max_num_seqs=1) as server:
        before = ask(server).wait().text
        running, waiting = ask(server, max_tokens=1000), ask(server)
        eventually(lambda: bool(running.deltas))
        operate(server, "sleep", level=2)
        for ended in (running, waiting):
            assert str(ended.wait().error) == "the engine sleeps: an operator's wake_up wakes it"
        for refused in (lambda: ask(server), lambda: told(server)):
            with pytest.raises(Unavailable, match="the engine sleeps"):
                refused()
        operate(server, "wake_up")
        assert ask(server).wait().text == before
        server.nothing_left()


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({}, "operator_key is not the operator's: `trimodal serve` is given it or makes one"),
        ({"operator_key": "guessed"}, "operator_key is not the operator's"),
        ({"operator_key": KEY, "operate": "dance"}, "operate is 'dance': one of load_lora_adapter, "),
        ({"operator_key": KEY, "operate": "load_lora_adapter"}, "lora_name is '': the name of an adapter"),
        ({"operator_key": KEY, "level": 3}, "level is 3: 1 or 2 is needed"),
        ({"operator_key": KEY, "level": 0}, "level is 0: 1 or 2 is needed"),
        ({"operator_key": KEY, "tier": "a"}, "unknown parameter 'tier': sleep has none of that name"),
    ],
)
def test_only_the_operator_calls_and_says_what(parameters: dict[str, object], sentence: str) -> None:
    settings = LlmSettings(engine="fake", operator_hash=HASH)
    with pytest.raises(InvalidArgument) as told:
        read_request({}, {"operate": "sleep", **parameters}, settings)
    assert str(told.value).startswith(sentence)
    with pytest.raises(InvalidArgument, match="operator_key is not"):  # a server that was given no key
        read_request({}, {"operate": "sleep", "operator_key": ""}, LlmSettings(engine="fake"))


def test_a_call_is_read() -> None:
    settings = LlmSettings(engine="fake", operator_hash=HASH)
    parameters = {"operate": "sleep", "operator_key": KEY, "level": 2}
    assert read_request({}, parameters, settings) == OperatorCall("sleep", "", 2)
