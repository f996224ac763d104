"""Adapters, sleep and arguments of vLLM's own, on a double of its wheel's signatures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.llm.doubles.sinks import eventually
from tests.llm.engine_core.rig import Loop
from tests.llm.engines.test_vllm import ask, opened, vllm  # noqa: F401
from tests.llm.engines.vllm_rig import PlayedVllm
from trimodal.errors import OperatorError
from trimodal.llm.engines.protocol import Adapter, CallName, EngineCall, EngineRequest, Sampling
from trimodal.llm.engines.vllm_adapters import lora_arguments
from trimodal.llm.settings import LlmSettings

POET = Adapter("poet", 41, "/adapters/poet")


@pytest.fixture
def played(vllm: PlayedVllm, monkeypatch: pytest.MonkeyPatch) -> PlayedVllm:  # noqa: F811
    """It parses as argparse does, with three of its arguments."""

    import vllm as library

    def add(parser: Any) -> Any:
        parser.add_argument("--enable-sleep-mode", action="store_true", default=False)
        parser.add_argument("--block-size", type=int, choices=[16, 32], default=None)
        parser.add_argument("--max-model-len", type=int)
        parser.add_argument("--enable-lora", action="store_true")
        parser.add_argument("--speculative-config", type=json.loads)
        return parser

    monkeypatch.setattr(library.AsyncEngineArgs, "add_cli_args", add)
    return vllm


def test_on_a_cpu_the_last_slot_of_adapters_stays_empty() -> None:
    """vLLM's kernels there compute rows without an adapter with the last slot's weights."""
    settings = LlmSettings.model_validate({"engine": "vllm", "device": "cpu", "max_loras": 2})
    assert lora_arguments(settings)["max_loras"] > 2 * settings.max_loras
    settings = LlmSettings.model_validate({"engine": "vllm", "max_loras": 2})
    assert lora_arguments(settings)["max_loras"] == 2


def test_adapters_are_counted_and_their_requests_are_told_apart(played: PlayedVllm, tmp_path: Path) -> None:
    loop = Loop(opened(played, tmp_path, max_loras=3, max_lora_rank=64))
    given = played.opened()
    assert [given[name] for name in ("enable_lora", "max_loras", "max_lora_rank")] == [True, 3, 64]
    assert given["max_cpu_loras"] >= 32, "each is read from its files once"
    assert loop.link.info.calls == {"load_lora_adapter", "unload_lora_adapter"}
    assert loop.link.info.unsupported == {}
    loop.link.add(ask(1))
    loop.link.add(EngineRequest(2, [7] * 10, Sampling(20), "salt", POET))
    eventually(lambda: len(played.requests()) == 2)
    plain, other = sorted(played.requests(), key=lambda one: str(one["request_id"]))
    assert ("lora_request" in plain, plain["prompt"]) == (False, {"prompt_token_ids": [7] * 10})
    adapter = other["lora_request"]
    assert (adapter.lora_name, adapter.lora_int_id, adapter.lora_path) == ("poet#41", 41, "/adapters/poet")
    assert other["prompt"] == {"prompt_token_ids": [7] * 10, "cache_salt": "salt"}
    loop.link.close()


def test_an_unloaded_adapter_goes_with_the_last_that_uses_it(played: PlayedVllm, tmp_path: Path) -> None:
    loop = Loop(opened(played, tmp_path, max_loras=3))
    loop.link.call(EngineCall(1, "load_lora_adapter", POET))
    assert loop.end(1).finish_reason == "stop"
    (loaded,) = played.recorder.named("add_lora")
    assert loaded.arguments["lora_request"].lora_int_id == 41  # type: ignore[attr-defined]
    loop.link.add(EngineRequest(2, [7] * 10, Sampling(20), "", POET))
    eventually(lambda: len(played.requests()) == 1)
    loop.link.call(EngineCall(3, "unload_lora_adapter", POET))
    assert loop.end(3).finish_reason == "stop"
    assert played.recorder.named("remove_lora") == []
    played.say(2, [5], "length")
    assert loop.end(2).finish_reason == "length"
    eventually(lambda: [call.arguments for call in played.recorder.named("remove_lora")] == [{"lora_id": 41}])
    loop.link.close()


def test_what_waited_until_its_adapter_had_gone_is_refused(played: PlayedVllm, tmp_path: Path) -> None:
    """vLLM loaded it again; with its files gone too, that was the end of the engine."""
    loop = Loop(opened(played, tmp_path, max_loras=3))
    for id, name in enumerate(("load_lora_adapter", "unload_lora_adapter"), 1):
        loop.link.call(EngineCall(id, name, POET))  # type: ignore[arg-type]
        assert loop.end(id).finish_reason == "stop"
    loop.link.add(EngineRequest(3, [7] * 10, Sampling(20), "", POET))
    end = loop.end(3)
    assert end.finish_reason == "refused"
    assert "the adapter 'poet' was unloaded before it began" in end.error
    assert (played.requests(), len(played.recorder.named("remove_lora"))) == ([], 1)
    loop.link.close()


def test_what_cannot_be_loaded_is_an_error_of_its_call_alone(played: PlayedVllm, tmp_path: Path) -> None:
    loop = Loop(opened(played, tmp_path, max_loras=3))
    loop.link.add(ask(1))
    eventually(lambda: len(played.requests()) == 1)
    problem = "LoRA rank 64 is greater than max_lora_rank 16."
    played.recorder.raises(
        "add_lora",
        Exception(
            "Call to add_lora method failed: "
            f"Worker failed with error '{problem}', please check the stack trace above for the root cause"
        ),
    )
    loop.link.call(EngineCall(2, "load_lora_adapter", POET))
    end = loop.end(2)
    assert (end.finish_reason, end.error) == ("error", problem)
    played.say(1, [5], "length")
    assert loop.end(1).finish_reason == "length"
    loop.link.close()


def test_a_deep_sleep_reads_the_weights_anew(played: PlayedVllm, tmp_path: Path) -> None:
    loop = Loop(opened(played, tmp_path, engine_args="--enable-sleep-mode"))
    assert (played.opened()["enable_sleep_mode"], loop.link.info.calls) == (True, {"sleep", "wake_up"})
    calls: list[tuple[CallName, int]] = [("sleep", 1), ("wake_up", 1), ("sleep", 2), ("wake_up", 1)]
    for id, (name, level) in enumerate(calls, 1):
        loop.link.call(EngineCall(id, name, level=level))
        assert loop.end(id).finish_reason == "stop"
    names = ("sleep", "wake_up", "collective_rpc")
    seen = [call.arguments for call in played.recorder.calls if call.name.rpartition(".")[2] in names]
    assert seen == [
        {"level": 1},
        {},
        {"level": 2},
        {"tags": ["weights"]},
        {"method": "reload_weights"},
        {"tags": ["kv_cache"]},
    ]
    loop.link.close()


def test_a_second_sleep_does_not_make_a_deep_one_light(played: PlayedVllm, tmp_path: Path) -> None:
    """vLLM ignores it: woken without its weights, the model would talk nonsense."""
    loop = Loop(opened(played, tmp_path, engine_args="--enable-sleep-mode"))
    calls: list[tuple[CallName, int]] = [("sleep", 2), ("sleep", 1), ("wake_up", 1), ("wake_up", 1)]
    for id, (name, level) in enumerate(calls, 1):
        loop.link.call(EngineCall(id, name, level=level))
    for id in range(1, 5):
        assert loop.end(id).finish_reason == "stop"
    names = [call.name.rpartition(".")[2] for call in played.recorder.calls]
    seen = [name for name in names if name in ("sleep", "wake_up", "collective_rpc")]
    assert seen == ["sleep", "sleep", "wake_up", "collective_rpc", "wake_up", "wake_up"]
    loop.link.close()


def test_arguments_of_its_own_are_read_by_its_parser(played: PlayedVllm, tmp_path: Path) -> None:
    opened(played, tmp_path, engine_args="--block-size 32").close()
    assert (played.opened()["block_size"], "enable_sleep_mode" in played.opened()) == (32, False)


def test_a_draft_model_of_its_arguments_is_speculation(played: PlayedVllm, tmp_path: Path) -> None:
    """What it drafts is held for it, and what vLLM does not honour beside drafts is refused."""
    drafts = '{"method": "draft_model", "model": "/drafts/small", "num_speculative_tokens": 3}'
    engine = opened(played, tmp_path, engine_args=f"--speculative-config '{drafts}'")
    assert played.opened()["speculative_config"] == json.loads(drafts)
    assert (engine.info.lookahead, engine.stats().speculating) == (3, True)
    assert "min_p" in engine.info.unsupported
    engine.close()
    with pytest.raises(OperatorError, match="speculative_config is set by this server's own parameters"):
        opened(played, tmp_path, speculation="prompt_lookup", engine_args=f"--speculative-config '{drafts}'")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--block-size 7", "parameter 'engine_args': argument --block-size: invalid choice: 7"),
        ("--blocksize 16", "parameter 'engine_args': unrecognized arguments: --blocksize 16"),
        ("--block-size '16", "parameter 'engine_args': .* cannot be read: No closing quotation"),
        (
            "--max-model-len 99",
            "parameter 'engine_args': max_model_len is set by this server's own",
        ),
        ("--enable-lora", "parameter 'engine_args': enable_lora is set by this server's own parameters"),
    ],
)
def test_a_wrong_argument_is_named(played: PlayedVllm, tmp_path: Path, arguments: str, sentence: str) -> None:
    with pytest.raises(OperatorError, match=sentence):
        opened(played, tmp_path, engine_args=arguments)
