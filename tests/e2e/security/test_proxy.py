"""deploy/haproxy before a real server: what a client needs gets through, what steers or harms it does not."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.e2e.conftest import BOUND, wait_until
from tests.e2e.haproxy import ROOT, haproxy
from trimodal.server import ports
from trimodal.server.launch import OPERATOR_HEADER
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEY = "a-key-of-this-test"
BEARER = MappingProxyType({"authorization": f"Bearer {KEY}"})
GENERATE = "/v2/models/llm/generate"
PROMPT = json.dumps({"text_input": "hi", "max_tokens": 20}).encode()


class Proxy(NamedTuple):
    http: str
    grpc: str
    triton: TritonServer


@pytest.fixture(scope="module")
def proxy(fakes: TritonServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    (folder / "triton.keys").write_text(hashlib.sha256(KEY.encode()).hexdigest() + "\n")
    chosen = ports.choose("127.0.0.1", {"http": 0, "grpc": 0})
    environment = {
        "TRIMODAL_PROXY_KEYS": str(folder / "triton.keys"),
        "TRIMODAL_PROXY_HTTP_PORT": str(chosen["http"]),
        "TRIMODAL_PROXY_GRPC_PORT": str(chosen["grpc"]),
        "TRIMODAL_TRITON_HTTP": fakes.http_url,
        "TRIMODAL_TRITON_GRPC": fakes.grpc_url,
    }
    where = Proxy(f"127.0.0.1:{chosen['http']}", f"127.0.0.1:{chosen['grpc']}", fakes)
    config = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
    with haproxy(config, folder / "log", environment, lambda: answers(where.http)):
        assert "WARNING" not in (folder / "log").read_text()
        yield where


def answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/v2/health/live", headers=BEARER, timeout=BOUND).is_success
    except httpx.TransportError:
        return False


def post(proxy: Proxy, path: str, body: bytes = b"{}", **headers: str) -> tuple[int, str]:
    answer = httpx.post(
        f"http://{proxy.http}{path}", content=body, headers={**BEARER, **headers}, timeout=BOUND
    )
    return answer.status_code, answer.text


def connected(proxy: Proxy) -> socket.socket:
    host, port = proxy.http.split(":")
    return socket.create_connection((host, int(port)), timeout=BOUND)


def raw(proxy: Proxy, *parts: bytes) -> bytes:
    """Sends the parts; all that comes until the connection is closed."""
    answer = b""
    with connected(proxy) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            while more := connection.recv(65_536):
                answer += more
        except (BrokenPipeError, ConnectionResetError):
            pass
    return answer


def head(*lines: str, path: str = GENERATE) -> bytes:
    first = f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n"
    return (first + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


def resident(server: TritonServer) -> float:
    """MB of tritonserver itself."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def test_text_is_streamed_over_http(proxy: Proxy) -> None:
    prompt = json.dumps({"text_input": "hi", "max_tokens": 200}).encode()
    url = f"http://{proxy.http}{GENERATE}_stream"
    with httpx.stream("POST", url, content=prompt, headers=BEARER, timeout=BOUND) as answer:
        came = [part for part in answer.iter_raw() if b"data:" in part]
    assert len(came) > 10, "what is written is sent on at once"


def test_tritonclient_over_both_protocols(proxy: Proxy) -> None:
    for module, address in ((httpclient, proxy.http), (grpcclient, proxy.grpc)):
        with module.InferenceServerClient(address) as client:
            assert client.is_model_ready("embedding", headers=dict(BEARER))
            text = module.InferInput("text_input", [1, 1], "BYTES")
            text.set_data_from_numpy(np.array([[b"a text"]], dtype=np.object_))
            vectors = client.infer("embedding", [text], headers=dict(BEARER)).as_numpy("embedding")
            assert vectors.shape[0] == 1


def test_without_a_known_key_nothing_is_answered(proxy: Proxy) -> None:
    for given in ({"authorization": ""}, {"authorization": "Bearer guessed"}):
        assert post(proxy, GENERATE, PROMPT, **given)[0] == 401
        with grpcclient.InferenceServerClient(proxy.grpc) as client:
            with pytest.raises(InferenceServerException) as refused:
                client.is_server_ready(headers=given)
            assert refused.value.status() == "StatusCode.UNAUTHENTICATED"


def test_what_steers_the_server_is_not_there_even_with_its_key(proxy: Proxy) -> None:
    operator = {OPERATOR_HEADER: proxy.triton.operator_key}
    for path in (
        "/v2/repository/index",
        "/v2/repository/models/llm/unload",
        "/v2/systemsharedmemory/region/a/register",
        "/v2/cudasharedmemory/unregister",
        "/v2/logging",
        "/v2/trace/setting",
        "/v2/models/llm/trace/setting",
        "/v2/models/llm/config",
        "/v2/models/../repository/index",
        "/v2/models/llm%2f..%2f/infer",
        "/metrics",
    ):
        assert post(proxy, path, **operator)[0] == 404, path
    with grpc.insecure_channel(proxy.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        metadata = [*BEARER.items(), (f"triton-grpc-protocol-{OPERATOR_HEADER}", proxy.triton.operator_key)]
        for call, request in (
            (stub.RepositoryIndex, pb.RepositoryIndexRequest()),
            (stub.RepositoryModelUnload, pb.RepositoryModelUnloadRequest(model_name="llm")),
            (stub.SystemSharedMemoryRegister, pb.SystemSharedMemoryRegisterRequest(name="a", key="/a")),
            (stub.LogSettings, pb.LogSettingsRequest()),
            (stub.TraceSetting, pb.TraceSettingRequest()),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call(request, metadata=metadata, timeout=BOUND)
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_metadata_that_steer_triton_are_taken_off(proxy: Proxy) -> None:
    """`triton_grpc_error` ends streams by gRPC's own errors, and 2.51 after some 20 of them."""
    request = pb.ModelInferRequest(model_name="none")
    with grpc.insecure_channel(proxy.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for _ in range(30):
            metadata = [*BEARER.items(), ("triton_grpc_error", "true")]
            (answer,) = stub.ModelStreamInfer(iter([request]), metadata=metadata, timeout=BOUND)
            assert "unknown model" in answer.error_message
    assert proxy.triton.alive


def test_compressed_bodies_and_messages_are_refused(proxy: Proxy) -> None:
    """4 MB that are 4 GB: tritonserver would inflate all of it."""
    before = resident(proxy.triton)
    bomb = gzip.compress(bytes(1 << 20)) * 256
    assert post(proxy, GENERATE, bomb, **{"content-encoding": "gzip"})[0] == 415
    with grpcclient.InferenceServerClient(proxy.grpc) as client:
        text = grpcclient.InferInput("text_input", [1, 1], "BYTES")
        text.set_data_from_numpy(np.array([[bytes(1 << 20)]], dtype=np.object_))
        with pytest.raises(InferenceServerException, match="compressed message is not taken"):
            client.infer("embedding", [text], headers=dict(BEARER), compression_algorithm="gzip")
    assert resident(proxy.triton) - before < 50


def test_bodies_without_a_length_or_too_large_are_refused(proxy: Proxy) -> None:
    before = resident(proxy.triton)
    chunks = head("Transfer-Encoding: chunked", "Connection: close") + b"1\r\nA\r\n" * 100 + b"0\r\n\r\n"
    assert raw(proxy, chunks).startswith(b"HTTP/1.1 411")
    assert raw(proxy, head("Content-Length: 100000000", "Connection: close")).startswith(b"HTTP/1.1 413")
    assert resident(proxy.triton) - before < 50


def test_two_framings_get_one_answer(proxy: Proxy) -> None:
    behind = b"0\r\n\r\nGET /v2 HTTP/1.1\r\nHost: a\r\n\r\n"
    for lines in (
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 60"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    ):
        answer = raw(proxy, head(*lines) + behind)
        assert answer.count(b"HTTP/1.1 ") == 1, answer
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 411")), answer


def test_headers_and_bodies_that_never_come_are_cut_off(proxy: Proxy) -> None:
    """All at once: each takes the 10 s that the configuration says, and `connected` waits for BOUND alone."""
    connections = [connected(proxy) for _ in range(3)]
    for connection, start in zip(connections, (b"", b"POST /v2", head("Content-Length: 500")), strict=True):
        connection.sendall(start)
    answered = []
    for connection in connections:
        with connection:
            answered.append(connection.recv(65_536))
    assert answered[1].startswith(b"HTTP/1.1 408")
    assert answered[2].startswith(b"HTTP/1.1 408")
    assert answers(proxy.http)


def test_idle_connections_hold_nobody_up(proxy: Proxy) -> None:
    """One address may have 512: more are closed at once."""
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(560):
            with contextlib.suppress(ConnectionResetError):  # closed before `connect` came back
                connections.append(stack.enter_context(connected(proxy)))
        wait_until(lambda: sum(map(is_open, connections)) <= 512, "the end of those above 512")
        assert sum(map(is_open, connections)) > 400
    wait_until(lambda: answers(proxy.http), "an answer again")


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
