import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from tritonclient.utils import InferenceServerException

from tests.explain.recorded import VISION
from trimodal.explain.triton_trace import NotTraced, TritonTrace, parse


def test_a_recorded_trace() -> None:
    root, *steps = parse(VISION)
    assert (root.model, root.request_id, root.parent) == ("vision", "explain-1", 0)
    assert [one.model for one in steps] == ["vision_preprocess", "vision_classify", "vision_rank"]
    assert {one.parent for one in steps} == {root.id}
    assert root.first("GRPC_WAITREAD_END") == 84679193919213
    assert root.first("COMPUTE_START") is None, "an ensemble computes nothing itself"


def test_what_happened_several_times_has_a_first_and_a_last() -> None:
    entries = [{"id": 1, "model_name": "llm"}]
    entries += [{"id": 1, "timestamps": [{"name": "GRPC_SEND_START", "ns": at}]} for at in (7, 3, 9)]
    (record,) = parse(json.dumps(entries))
    assert (record.first("GRPC_SEND_START"), record.last("GRPC_SEND_START")) == (3, 9)


class Api:
    """Triton's trace API: settings of the server and of models."""

    def __init__(self, file: Path, error: str = "", **settings: str) -> None:
        self.common = {"trace_file": str(file), "trace_mode": "triton", "trace_level": "OFF"} | {
            "trace_rate": "1000",
            "trace_count": "-1",
            "log_frequency": "0",
            **settings,
        }
        self.own: dict[str, dict[str, str]] = {}
        self.headers: list[object] = []
        self.error = error

    async def get_trace_settings(self, model, headers, client_timeout):
        assert client_timeout == 7
        self.headers.append(headers)
        if self.error:
            raise InferenceServerException(self.error)
        found = self.common | self.own.get(model, {})
        return SimpleNamespace(settings={k: SimpleNamespace(value=[v]) for k, v in found.items()})

    async def update_trace_settings(self, model, settings, headers, client_timeout):
        assert client_timeout == 7
        for name, value in settings.items():
            if value is None:
                self.own.get(model, {}).pop(name, None)
            else:
                text = value[0] if isinstance(value, list) else value
                self.own.setdefault(model, {})[name] = text


def tracing(api: Api, *models: str) -> TritonTrace:
    return TritonTrace(api, models, "secret", 7)


def test_settings_are_on_for_the_request_and_as_before_afterwards(tmp_path) -> None:
    api = Api(tmp_path / "trace")
    api.own["llm"] = {"trace_rate": "7", "trace_level": "TENSORS"}

    async def use() -> None:
        async with tracing(api, "assistant", "llm").on():
            for model in ("assistant", "llm"):
                assert api.own[model]["trace_level"] == "TIMESTAMPS"
                assert api.own[model]["trace_rate"] == "1"
            raise KeyError("as a request that fails")

    with pytest.raises(KeyError):
        asyncio.run(use())
    assert not api.own["assistant"]
    assert api.own["llm"]["trace_rate"] == "7"
    assert api.own["llm"]["trace_level"] == "TENSORS"
    assert api.headers[0] == {"triton-grpc-protocol-trimodal-operator-key": "secret"}


def test_two_at_once_leave_no_tracing_behind(tmp_path) -> None:
    api = Api(tmp_path / "trace")

    async def use() -> None:
        async with AsyncExitStack() as second:
            async with tracing(api, "llm").on():
                await second.enter_async_context(tracing(api, "llm").on())
            assert not api.own["llm"]

    asyncio.run(use())
    assert not api.own["llm"]


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"trace_mode": "opentelemetry"}, "", "to OpenTelemetry"),
        ({"trace_file": ""}, "", "without a file"),
        ({"trace_file": "/no/such/place/trace"}, "", "on another machine"),
        ({}, "This protocol is restricted, expecting header 'x'", "operator's key"),
        ({}, "unknown", "trace API: "),
    ],
)
def test_why_there_is_no_trace(tmp_path, settings, error, told) -> None:
    api = Api(tmp_path / "trace", error, **settings)

    async def use() -> None:
        async with tracing(api, "llm").on():
            raise AssertionError("it is not on")

    with pytest.raises(NotTraced, match=told):
        asyncio.run(use())
    assert not api.own


@pytest.mark.parametrize(("level", "left"), [("OFF", ["trace.0"]), ("TIMESTAMPS", ["trace.0", "trace.1"])])
def test_new_files_are_read_and_removed_unless_others_are_traced(tmp_path, level, left) -> None:
    (tmp_path / "trace.0").write_text(VISION)
    api = Api(tmp_path / "trace", trace_level=level)

    async def use() -> None:
        trace = tracing(api, "vision")
        async with trace.on():
            assert await trace.records("explain-1", "vision", seconds=0) == [], "an old file"
            (tmp_path / "trace.1").write_text(VISION)
            assert await trace.records("explain-2", "vision", seconds=0) == []
            assert await trace.records("explain-1", "assistant", seconds=0) == [], "only of what it called"
            found = await trace.records("explain-1", "vision", seconds=0)
            assert [one.model for one in found][0] == "vision"

    asyncio.run(use())
    assert sorted(path.name for path in tmp_path.iterdir()) == left
