"""Triton's published advisories since 2.51, each tried on the served stack: refused, or not there.

docs/security.md has the table of them; `test_docs_name_each` holds the two together.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from tests.e2e.conftest import BOUND
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

DOCS = Path(__file__).parents[3] / "docs" / "security.md"
SHM = re.compile(r"/dev/shm|shm_region|trimodal-server-")
RESTRICTED = "This API is restricted"


def ask(server: TritonServer, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """Status and text of an answer; `body` goes as JSON unless it is bytes."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    with closing(http.client.HTTPConnection(server.http_url, timeout=BOUND)) as connection:
        connection.request(method, path, body=raw, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")


def call(server: TritonServer, name: str, request: Any, *metadata: tuple[str, str]) -> tuple[str, str]:
    """Code and details of a gRPC call."""
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            getattr(stub, name)(request, timeout=BOUND, metadata=metadata)
        except grpc.RpcError as error:
            return error.code().name, error.details() or ""
        return "OK", ""


def embed(**more: object) -> dict[str, object]:
    """A good request to `embedding`, as JSON."""
    text = {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["a text"]}
    return {"inputs": [text], **more}


def embed_over_grpc() -> Any:
    request = pb.ModelInferRequest(model_name="embedding", raw_input_contents=[b"\x01\x00\x00\x00a"])
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
    return request


def infer(server: TritonServer, body: object) -> tuple[int, str]:
    return ask(server, "POST", "/v2/models/embedding/infer", body)


@pytest.fixture(autouse=True)
def _lives(fakes: TritonServer) -> Any:
    """Whatever a test sends, the server answers the next request."""
    yield
    assert infer(fakes, embed())[0] == 200
    assert fakes.alive


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/systemsharedmemory/region/a/register"),
        ("POST", "/v2/systemsharedmemory/unregister"),
        ("GET", "/v2/systemsharedmemory/status"),
        ("POST", "/v2/cudasharedmemory/region/a/register"),
        ("POST", "/v2/cudasharedmemory/unregister"),
        ("GET", "/v2/cudasharedmemory/status"),
    ],
)
def test_shared_memory_cannot_be_registered_over_http(fakes: TritonServer, method: str, path: str) -> None:
    region = {"key": "/a", "offset": (1 << 64) - 1, "byte_size": 8}
    status, text = ask(fakes, method, path, region if method == "POST" else None)
    assert (status, RESTRICTED in text) == (403, True)


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(name="a", key="/a", byte_size=8)),
        ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()),
        ("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest()),
        ("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="a")),
        ("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest()),
        ("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest()),
        ("RepositoryIndex", pb.RepositoryIndexRequest()),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="../../tmp/x")),
        ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="llm")),
        ("LogSettings", pb.LogSettingsRequest()),
        ("TraceSetting", pb.TraceSettingRequest()),
        ("TraceSetting", pb.TraceSettingRequest(model_name="llm")),
    ],
)
def test_what_steers_the_server_is_closed_over_grpc(fakes: TritonServer, name: str, request_: Any) -> None:
    for metadata in ((), (("triton-grpc-protocol-trimodal-operator-key", "guessed"),)):
        code, text = call(fakes, name, request_, *metadata)
        assert (code, "restricted" in text) == ("UNAVAILABLE", True)


def test_a_region_that_is_not_registered_is_refused_and_no_name_is_told(fakes: TritonServer) -> None:
    regions = [path.name for path in Path("/dev/shm").glob("trimodal-server-*")]
    assert regions, "those of the Python models"
    for region, size in ((regions[0], 64), ("a", (1 << 63) - 1)):
        place = {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": 0}
        text = {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "parameters": place}
        status, told = infer(fakes, {"inputs": [text]})
        sentence = f"Unable to find shared memory region: '{region}'"
        assert (status, json.loads(told)["error"]) == (404, sentence)
        over_grpc = pb.ModelInferRequest(model_name="embedding")
        tensor = over_grpc.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
        tensor.parameters["shared_memory_region"].string_param = region
        tensor.parameters["shared_memory_byte_size"].int64_param = size
        assert call(fakes, "ModelInfer", over_grpc)[0] == "NOT_FOUND"


def test_errors_name_no_region_and_no_path(fakes: TritonServer) -> None:
    """The first step of the published chain was an error of the Python backend that named its region."""
    huge = {"name": "text_input", "datatype": "BYTES", "shape": [100_000, 1], "data": ["a" * 100] * 100_000}
    told = [
        infer(fakes, {"inputs": [huge]})[1],
        infer(fakes, embed(outputs=[{"name": "none"}]))[1],
        infer(fakes, b"{")[1],
        ask(fakes, "POST", "/v2/models/vision/infer", {"inputs": []})[1],
        ask(fakes, "POST", "/v2/models/llm/generate_stream", {"text_input": "a", "max_tokens": -1})[1],
        ask(fakes, "GET", "/v2/models/none/versions/1/config")[1],
    ]
    for text in told:
        assert "error" in text
        assert not SHM.search(text), text
        assert "/1/model.py" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index",
        "/v2/repository/index?a=b",
        "/v2/repository/models/llm/unload",
        "/v2/repository/models/..%2f..%2ftmp%2fx/load",
        "/v2/repository/models/echo;id/load",
    ],
)
def test_the_repository_api_is_closed_over_http(fakes: TritonServer, path: str) -> None:
    body = {"parameters": {"config": '{"backend": "python"}', "file:../../1/model.py": "cHJpbnQoMSk="}}
    for key in ({}, {"trimodal-operator-key": "guessed"}):
        status, text = ask(fakes, "POST", path, body, **key)
        assert (status, RESTRICTED in text) == (403, True)


@pytest.mark.parametrize(
    "path",
    [
        *("//v2/repository/index", "/v2//repository/index", "/v2/repository/index/", "/V2/repository/index"),
        *("/v2/./repository/index", "/v2/models/../repository/index", "/v2/repository/%69ndex"),
        *("/v2/../v2/repository/index", "/invocations", "/models", "/models/llm", "/ping", "/predict"),
    ],
)
def test_no_other_way_leads_there(fakes: TritonServer, path: str) -> None:
    """The endpoints of SageMaker and Vertex AI, which knew no restriction, are off."""
    for method in ("GET", "POST", "DELETE"):
        assert ask(fakes, method, path, b"{}")[0] in (404, 405), (method, path)


@pytest.mark.parametrize("path", ["/v2/logging", "/v2/trace/setting", "/v2/models/llm/trace/setting"])
def test_logs_and_traces_cannot_be_turned(fakes: TritonServer, tmp_path: Path, path: str) -> None:
    there = str(tmp_path / "file")
    settings = {"log_file": there, "log_format": "%0n", "trace_file": there, "trace_level": ["TENSORS"]}
    for method, body in (("GET", None), ("POST", settings)):
        status, text = ask(fakes, method, path, body)
        assert (status, RESTRICTED in text) == (403, True)
    assert not list(tmp_path.iterdir())


NAMES = ["../../etc/passwd", "..", "/etc", "llm/../../x", "a\\b", "$(id)"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_of_models_are_no_paths(fakes: TritonServer, name: str) -> None:
    for method, request in (
        ("ModelConfig", pb.ModelConfigRequest(name=name)),
        ("ModelInfer", pb.ModelInferRequest(model_name=name)),
        ("ModelReady", pb.ModelReadyRequest(name=name)),
    ):
        code, text = call(fakes, method, request)
        assert code in ("NOT_FOUND", "INVALID_ARGUMENT", "OK" if method == "ModelReady" else "")
        assert "root:" not in text


@pytest.mark.slow
def test_a_body_of_very_many_chunks_kills_nothing(own_server: Callable[..., TritonServer]) -> None:
    """Each chunk takes 16 bytes of a thread's stack, 2.51 died on the usual 8 MiB; and a KiB of memory."""
    server = own_server(("echo",))
    host, port = server.http_url.split(":")
    for path in ("/v2/models/echo/infer", "/v2/repository/index"):
        with socket.create_connection((host, int(port)), timeout=BOUND) as connection:
            start = f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(start.encode() + b"1\r\nA\r\n" * 700_000 + b"0\r\n\r\n")
            assert b"error" in connection.recv(65_536)
    assert server.api.ready("echo")


SIZES = [1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -1, -(1 << 63), 1e308]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes_that_overflow_are_refused(fakes: TritonServer, size: float) -> None:
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [size, 4], "data": ["a"]}
    binary = {**tensor, "shape": [1, 1], "parameters": {"binary_data_size": size}}
    for body in ({"inputs": [tensor]}, {"inputs": [binary]}):
        assert infer(fakes, body)[0] >= 400, body
    infer(fakes, embed(parameters={"timeout": size, "priority": size}))
    for length in (f"{size:.0f}", "9" * 30):
        header = {"Inference-Header-Content-Length": length}
        # 2.51 takes a number of 64 bits for its last 32; 0 means that there is no such header.
        assert ask(fakes, "POST", "/v2/models/embedding/infer", embed(), **header)[0] in (200, 400, 500)
    if isinstance(size, int) and -(1 << 63) <= size < 1 << 63:
        request = embed_over_grpc()
        request.inputs[0].shape[:] = [size, 4]
        assert call(fakes, "ModelInfer", request)[0] == "INVALID_ARGUMENT"


def test_outputs_asked_for_many_times_or_in_very_many_classes(fakes: TritonServer) -> None:
    for outputs in ([{"name": "embedding"}] * 1000, [{"name": f"none{index}"} for index in range(50_000)]):
        assert infer(fakes, embed(outputs=outputs))[0] in (200, 400)
    for classes in (1 << 31, (1 << 63) - 1, -1):
        many = {"name": "embedding", "parameters": {"classification": classes}}
        assert infer(fakes, embed(outputs=[many]))[0] in (200, 400, 500)


def test_texts_that_are_longer_than_their_bytes(fakes: TritonServer) -> None:
    request = embed_over_grpc()
    for length in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x02\x00\x00\x00"):
        request.raw_input_contents[:] = [length + b"a"]
        assert call(fakes, "ModelInfer", request)[0] == "INVALID_ARGUMENT"


def test_tritons_own_parameters_cannot_be_named(fakes: TritonServer) -> None:
    for name in ("triton_enable_empty_final_response", "triton_grpc_error", "triton_x"):
        status, text = infer(fakes, embed(parameters={name: True}))
        assert (status, "reserved" in text) == (400, True)


def test_docs_name_each() -> None:
    """Every test of here is in the page's table, and every one of the table is there."""
    named = set(re.findall(r"`(test_\w+)`", DOCS.read_text()))
    here = {name for name in globals() if name.startswith("test_") and name != "test_docs_name_each"}
    assert here <= named, here - named
    tests = list(DOCS.parents[1].glob("tests/e2e/**/test_*.py"))
    known = {path.stem for path in tests}
    for path in tests:
        known.update(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    assert named <= known, named - known
