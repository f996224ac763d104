import grpc
import pytest
from tritonclient.grpc import service_pb2

from trimodal.client.errors import (
    ConnectError,
    ConnectionLost,
    Timeout,
    from_message,
    from_status,
    may_lack_version,
    of_index,
    of_statistics,
)
from trimodal.errors import (
    Cancelled,
    InternalError,
    InvalidArgument,
    ModelNotFound,
    RequestError,
    Unavailable,
)

S = grpc.StatusCode
# As gRPC 1.85 and Triton 2.51 word them.
DIED = "the model's process is not healthy: it is loaded again; retry after 2 s"
REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused"
HTTP_PORT = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:8000: Socket closed"
NO_NAME = "errors resolving nohost.invalid:80: [address lookup failed: Domain name not found]"


@pytest.mark.parametrize(
    ("code", "details", "kind", "words"),
    [
        (S.INVALID_ARGUMENT, "image is empty", InvalidArgument, "image is empty"),
        (S.INVALID_ARGUMENT, "[request id: a b] image is empty", InvalidArgument, "image is empty"),
        (S.INVALID_ARGUMENT, "in ensemble 'vision', image is empty", InvalidArgument, "image is empty"),
        (
            S.NOT_FOUND,
            "Request for unknown model: 'x' is not found",
            ModelNotFound,
            "the server has no model 'x'",
        ),
        (
            S.NOT_FOUND,
            "Request for unknown model: 'x' has no available versions",
            Unavailable,
            "'x' has no available versions",
        ),
        (S.UNIMPLEMENTED, "ModelInfer RPC doesn't support decoupled", InvalidArgument, "ModelInfer RPC"),
        (S.UNAVAILABLE, "the queue is full", Unavailable, "the queue is full"),
        (S.UNAVAILABLE, REFUSED, ConnectError, "no server at h:1"),
        (S.UNAVAILABLE, HTTP_PORT, ConnectError, "no gRPC endpoint at h:1"),
        (S.UNIMPLEMENTED, "Received http2 header with status: 404", ConnectError, "no gRPC endpoint at h:1"),
        (S.UNAVAILABLE, NO_NAME, ConnectError, "no server at h:1"),
        (S.UNAVAILABLE, "Socket closed", ConnectionLost, "went away"),
        (S.UNAVAILABLE, "recvmsg:Connection reset by peer", ConnectionLost, "went away"),
        (S.INTERNAL, "Received RST_STREAM with error code 2", ConnectionLost, "went away"),
        (S.UNAVAILABLE, "Stream removed (ping timeout)", ConnectionLost, "went away"),
        (S.UNAVAILABLE, "Too many pings", ConnectionLost, "went away"),
        (S.UNAVAILABLE, "ipv4:127.0.0.1:80: GOAWAY received; Error code: 0", ConnectionLost, "went away"),
        (S.UNAVAILABLE, "Endpoint closing", ConnectionLost, "went away"),
        (S.DEADLINE_EXCEEDED, "Deadline Exceeded", Timeout, "deadline"),
        (S.CANCELLED, "cancelled", Cancelled, "cancelled"),
        (S.INTERNAL, "the model failed", InternalError, "the model failed"),
        (S.UNKNOWN, None, InternalError, "unknown"),
    ],
)
def test_statuses(code, details, kind, words):
    error = from_status(code, details, "h:1")
    assert type(error) is kind
    assert words in str(error)
    assert "ensemble" not in str(error)
    assert "request id" not in str(error)


@pytest.mark.parametrize(
    "words",
    [
        HTTP_PORT,
        REFUSED,
        NO_NAME,
        "Received http2 header with status: 404",
        "Socket closed",
        "Too many pings",
    ],
)
@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (S.NOT_FOUND, "Request for unknown model: '{}' is not found", ModelNotFound),
        (S.UNAVAILABLE, "Request for unknown model: '{}' is not at ready state", Unavailable),
        (S.UNAVAILABLE, "[request id: {}] the queue is full", Unavailable),
        (S.INVALID_ARGUMENT, "language is '{}': it is unknown", InvalidArgument),
        (S.INTERNAL, "text_input: '{}' made the tokenizer fail", InternalError),
    ],
)
def test_what_a_caller_wrote_is_not_taken_for_grpcs_own_words(words, code, details, kind):
    assert type(from_status(code, details.format(words), "h:1")) is kind


@pytest.mark.parametrize("words", ["Stub process 'a' is not healthy", "stream 7 is not open", "in exit"])
def test_a_request_id_is_not_taken_for_tritons_own_words(words):
    error = from_status(S.INVALID_ARGUMENT, f"[request id: {words}] image is empty", "h:1")
    assert (type(error), str(error)) == (InvalidArgument, "image is empty")
    error = from_message(f"[request id: {words}] image is empty", by_model=False)
    assert (type(error), str(error)) == (InvalidArgument, "image is empty")


@pytest.mark.parametrize(
    "words",
    [
        "a, INTERNAL: b",
        "a, UNAVAILABLE: b; retry after 5 s",
        "in ensemble 'a', INTERNAL: b",
        "Request for unknown model: 'a' is not found",
        "Request for unknown model: 'a' is not at ready state",
        "Stub process 'a' is not healthy",
        "stream 7 is not open",
    ],
)
def test_what_a_caller_wrote_is_not_taken_for_a_models_or_tritons_words(words):
    """A value that a model quotes in its refusal made a 500 or a 503 of it."""
    told = f"lora_name is '{words}': the name of an adapter is needed"
    for error in (
        from_message(f"INVALID_ARG: {told}", by_model=True),
        from_message(f"[request id: a] in ensemble 'b', INVALID_ARG: {told}", by_model=True),
        from_status(S.INVALID_ARGUMENT, told, "h:1"),
    ):
        assert (type(error), str(error)) == (InvalidArgument, told)
    assert type(from_message(told, by_model=True)) is RequestError


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ("INVALID_ARG: max_tokens is 0", InvalidArgument, "max_tokens is 0"),
        ("UNAVAILABLE: the queue is full", Unavailable, "the queue is full"),
        ("NOT_FOUND: saw: no version 7", ModelNotFound, "saw: no version 7"),
        ("CANCELLED: the client cancelled", Cancelled, "the client cancelled"),
        ("INTERNAL: two\nlines", InternalError, "two\nlines"),
        ("in ensemble 'a', INVALID_ARG: bad", InvalidArgument, "bad"),
        ("some other model's words", RequestError, "some other model's words"),
        ("unknown model: 'q' is not found", RequestError, "unknown model: 'q' is not found"),  # one inside
        ("Stub process 'q_0' is not healthy.", Unavailable, DIED),
        (
            "Failed to process the request(s) for model instance 'q_0', message: Stub process 'q_0' is not "
            "healthy.",
            Unavailable,
            DIED,
        ),
    ],
)
def test_messages_of_models(message, kind, words):
    error = from_message(message, by_model=True)
    assert type(error) is kind
    assert str(error) == words


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[request id: 7] inference input 'max_tokens' data-type is 'FP32'", InvalidArgument),
        ("unexpected inference input 'x' for model 'llm'", InvalidArgument),
        ("Request for unknown model: 'nope' is not found", ModelNotFound),
        ("Request for unknown model: 'llm' version 9 is not found", ModelNotFound),
        ("Request for unknown model: 'llm' version 2 is not at ready state", Unavailable),
        ("Request for unknown model: 'llm' has no available versions", Unavailable),
        ("[request id: 7] Exceeds maximum queue size", Unavailable),
        ("[request id: 7] Request timeout expired", Unavailable),
    ],
)
def test_messages_of_triton_itself(message, kind):
    error = from_message(message, by_model=False)
    assert type(error) is kind
    assert "request id" not in str(error)


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (ModelNotFound("the server has no model 'llm' version 7"), True),
        (Unavailable("Request for unknown model: 'llm' version 7 is not at ready state"), True),
        (Unavailable("Request for unknown model: 'llm' has no available versions"), True),
        (Unavailable("the model 'vision' is not ready"), True),
        (from_message("unknown model: 'llm' version 2 is not at ready state", by_model=False), True),
        (Unavailable("Exceeds maximum queue size"), False),
        (Unavailable("Server is shutting down"), False),
        (Unavailable("the queue is full"), False),
        (InvalidArgument("max_tokens is 0"), False),
    ],
)
def test_what_a_version_that_is_not_loaded_may_be_refused_with(error, may):
    assert may_lack_version(error) is may


@pytest.mark.parametrize(
    ("loaded", "kind", "told"),
    [
        (["1", "2"], ModelNotFound, "the server has no model 'llm' version 7, only 1, 2"),
        (["1", "7"], Unavailable, "the model 'llm' version 7 was not loaded yet; try again later"),
        ([], ModelNotFound, "told"),
    ],
)
def test_a_version_that_was_not_found(loaded, kind, told):
    message = service_pb2.ModelStatisticsResponse()
    for version in loaded:
        message.model_stats.add(name="llm", version=version)
    error = of_statistics(ModelNotFound("told"), "llm", "7", message)
    assert (type(error), str(error)) == (kind, told)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (("UNAVAILABLE", "unloaded"), ModelNotFound),
        (None, ModelNotFound),
        (("UNAVAILABLE", "it failed to load"), Unavailable),
        (("LOADING", ""), Unavailable),
        (("UNLOADING", ""), Unavailable),
        (("READY", ""), Unavailable),  # by now
    ],
)
@pytest.mark.parametrize("others", [("1", "2"), ()])
def test_a_version_that_was_not_at_ready_state(state, kind, others):
    message = service_pb2.RepositoryIndexResponse()
    message.models.add(name="vision", version="3", state="READY")
    for version in others:
        message.models.add(name="llm", version=version, state="READY")
    if state:
        message.models.add(name="llm", version="7", state=state[0], reason=state[1])
    error = of_index(Unavailable("told"), "llm", "7", message)
    assert type(error) is (kind if others else Unavailable), "without any other one it is loaded again"
    if type(error) is ModelNotFound:
        assert str(error) == "the server has no model 'llm' version 7, only 1, 2"


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("UNAVAILABLE: the queue is full; retry after 0.4 s", 0.4),
        ("UNAVAILABLE: late; retry after 12 s", 12.0),
        ("UNAVAILABLE: late; retry after 1e+03 s", 1000.0),
        ("UNAVAILABLE: the queue is full", None),
        ("UNAVAILABLE: retry after lunch s", None),
    ],
)
def test_a_hint_on_when_to_try_again_is_read(message: str, seconds: float | None):
    error = from_message(message, by_model=True)
    assert isinstance(error, Unavailable)
    assert error.retry_after_s == seconds
    assert f"UNAVAILABLE: {error}" == message
