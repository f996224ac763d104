"""Arguments of another type than they are to have: an error that names them, and nothing is sent."""

import math

import numpy as np
import pytest

from trimodal.client import Client, FakeTransport, InvalidArgument, Timeouts

AUDIO = np.zeros(1600, np.float32)
WRONG = (5, 1.5, b"x", None, [], {}, object(), math.nan)


def shown(value):
    return f"{type(value).__name__}{len(value) if isinstance(value, str) else ''}"


CALLS = {
    "complete": lambda client, **more: client.complete("hi", **more),
    "ask": lambda client, **more: client.ask("hi", **more).answer(),
    "classify": lambda client, **more: client.classify([b"x"], **more),
    "embeddings": lambda client, **more: client.embeddings(["x"], **more),
    "finished": lambda client, **more: client.finished(AUDIO, **more),
    "transcribe": lambda client, **more: client.transcribe(AUDIO, **more),
    "cancel": lambda client, **more: client.cancel("x" * 16, **more),
}


async def refused(call, told):
    transport = FakeTransport()
    with pytest.raises(InvalidArgument, match=told):
        await call(Client(transport=transport))
    assert transport.requests == []


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", WRONG, ids=shown)
async def test_a_model_is_named_by_a_text(name, wrong):
    await refused(lambda client: CALLS[name](client, model=wrong), "^model is .*: text is needed")


@pytest.mark.parametrize("name", [name for name in CALLS if name != "cancel"])
@pytest.mark.parametrize("wrong", [0, -1, math.nan, "5", b"x", [], {}], ids=shown)
async def test_a_timeout_is_seconds(name, wrong):
    await refused(
        lambda client: CALLS[name](client, timeout=wrong), "^timeout is .*: it must be above 0 seconds"
    )


@pytest.mark.parametrize("name", ["complete", "ask"])
@pytest.mark.parametrize("wrong", [*WRONG, "x" * 10_000, "a\nb", "a\x1b[31m", "é" * 65, "\ud800"], ids=shown)
async def test_a_request_id_is_what_a_line_of_a_log_has_room_for(name, wrong):
    await refused(lambda client: CALLS[name](client, request_id=wrong), "^request_id")
    with pytest.raises(InvalidArgument, match="^request_id"):
        Client(transport=FakeTransport()).with_metadata({}, wrong)


@pytest.mark.parametrize("wrong", [5, b"x", None, [], "traceparent"], ids=shown)
def test_metadata_are_names_and_values(wrong):
    with pytest.raises(InvalidArgument, match="^metadata is .*: names and values are needed"):
        Client(transport=FakeTransport()).with_metadata(wrong)
    with pytest.raises(InvalidArgument, match="^metadata '5'"):
        Client(transport=FakeTransport()).with_metadata({5: "a"})


@pytest.mark.parametrize("name", ["Trace", "", "a b", ":path", "x-bin", "é"])
def test_metadata_that_no_header_can_carry(name):
    """gRPC ended calls with an error of its own, streams with that of a server that fails."""
    client = Client(transport=FakeTransport())
    with pytest.raises(InvalidArgument, match=f"metadata '{name}': a name of"):
        client.with_metadata({name: "value"})
    for value in ("é", "a\nb", 5, b"a"):
        with pytest.raises(InvalidArgument, match="metadata 'x-trace' is .*: printable ASCII is needed"):
            client.with_metadata({"x-trace": value})
    assert client.with_metadata({"x-trace_1.2": ""})._metadata == {"x-trace_1.2": ""}


@pytest.mark.parametrize(
    ("history", "told"),
    [
        (5, "history is int: messages with role and content are needed"),
        ([5], "history has int: messages with role and content are needed"),
        ([{"role": "user", "content": b"x"}], "history cannot be written as JSON"),
        ([{"role": "user", "content": "x", "labels": 5}], "labels of history is int: a list is needed"),
        (
            [{"role": "user", "content": "x", "labels": [None]}],
            "labels of history have NoneType",
        ),
    ],
)
async def test_a_history_is_turns(history, told):
    await refused(lambda client: client.ask("hi", history=history).answer(), told)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda client: client.ask(5).answer(), "text is int: text is needed"),
        (lambda client: client.ask([5]).answer(), "text is list: text is needed"),
        (lambda client: client.complete("hi", tenant=["a"]), "tenant is list: text is needed"),
        (lambda client: client.complete("hi", ignore_eos="false"), "ignore_eos is 'false': true or false is"),
        (
            lambda client: client.embeddings(["x"], truncate="false"),
            "truncate is 'false': true or false is",
        ),
        (lambda client: client.classify([b"x"], top_k="2"), "top_k is 2: a whole number"),
        (lambda client: client.transcribe(AUDIO, on_update=5), "on_update is int: a function is needed"),
        (lambda client: client.max_batch_size([]), "model is list: text is needed"),
        # A text in place of a list is not taken apart.
        (lambda client: client.embed("text"), "texts is str: a list is needed"),
        (lambda client: client.embed(b"text"), "texts is bytes: a list is needed"),
        (lambda client: client.embed([b"text"]), "texts is bytes: text is needed"),
        (lambda client: client.classify(b"image"), "images is bytes: a list is needed"),
        (lambda client: client.classify(["cat.jpg"]), "images has str: the bytes of files are needed"),
        (
            lambda client: client.classify([bytearray()]),
            "images has bytearray: the bytes of files are needed",
        ),
        (lambda client: client.classify([np.zeros((2, 2))]), "images has ndarray: the bytes of files"),
        (
            lambda client: client.ask("hi", image=bytearray(b"x")).answer(),
            "image is bytearray: the bytes of a",
        ),
        (lambda client: client.complete(b"hi"), "prompt is bytes: text or its token ids are needed"),
        (lambda client: client.complete(7), "prompt is int: text or its token ids are needed"),
        (lambda client: client.complete(messages="hi"), "messages is str: a list is needed"),
        (lambda client: client.complete(messages={"role": "user"}), "messages is dict: a list is needed"),
        (lambda client: client.complete("hi", stop=7), "stop is int: a list is needed"),
        (lambda client: client.complete("hi", stop_token_ids=7), "stop_token_ids is int: a list is needed"),
        (lambda client: client.complete("hi", stop=[b"end"]), "stop is bytes: text is needed"),
        (lambda client: client.cancel(7), "cancel_key is int: text is needed"),
        (lambda client: client.ask("hi", history="text").answer(), "history is str: messages with role"),
    ],
)
async def test_others(call, told):
    await refused(call, told)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"url": 5}, "url is '5'"),
        ({"connections": 1.5}, "connections is 1.5: a whole number from 1 is needed"),
        ({"connections": 0}, "connections is 0: a whole number from 1 is needed"),
        ({"timeouts": 5}, "timeouts is int: Timeouts are needed"),
    ],
)
def test_what_a_client_is_made_of(arguments, told):
    with pytest.raises(ValueError, match=told):
        Client(**arguments)
    with pytest.raises(ValueError, match="timeout 'silence' is '5': it must be above 0 seconds"):
        Timeouts(silence="5")
