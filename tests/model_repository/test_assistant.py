"""The assistant's model.py on a fake stub: its tensors are its config's, every request gets one end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import triton_to_np_dtype

from tests.assistant.doubles import note
from tests.assistant.endpoint import Endpoint
from tests.doubles import pb_utils
from tests.doubles.pb_utils import InferenceRequest, ResponseSender, TritonError
from tests.doubles.waiting import wait_until
from trimodal.assistant.request import INPUTS
from trimodal.client.transports.fake import llm_outputs

MODEL = Path(__file__).parents[2] / "model_repository" / "assistant"
CONFIG, PARAMETERS = pb_utils.config_of(MODEL)
BOUND = 20.0


def llm(_: Any) -> Iterator[Any]:
    yield llm_outputs("said") | {"logprobs": np.array([b"[]"], object)}
    yield llm_outputs("", "stop") | note()


class Glue:
    """The model.py, initialized as its config.pbtxt says but for `parameters`."""

    def __init__(self, module: Any, endpoint: Endpoint, **parameters: str) -> None:
        self.endpoint = endpoint
        parameters = {"grpc_address": endpoint.address} | parameters
        pb_utils.MODELS["speech"] = lambda _: {
            "committed": np.array([[b" words"]], object),
            "trace": np.array([[b"[]"]], object),
        }
        pb_utils.MODELS["vision"] = lambda _: {
            "labels": np.array([[b"a", b"b"]], object),
            "scores": np.array([[0.75, 0.25]], np.float32),
        }
        self.model = pb_utils.initialized(module, MODEL, PARAMETERS | parameters)

    def ask(self, *requests: InferenceRequest) -> list[ResponseSender]:
        assert self.model.execute(list(requests)) is None, "decoupled models return nothing"
        return [request.sender for request in requests]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint(llm)
    yield endpoint
    endpoint.close()


@pytest.fixture
def glue(module: Any, endpoint: Endpoint) -> Iterator[Glue]:
    glue = Glue(module, endpoint)
    yield glue
    glue.model.finalize()


def question(text: bytes = b"hello", **more: Any) -> InferenceRequest:
    return InferenceRequest({"text_input": np.array([text], object), **more})


def test_it_reads_every_input_of_its_config():
    assert {one.name for one in CONFIG.input} == set(INPUTS)


def test_what_it_asks_of_the_llm_belongs_to_the_request_s_trace(glue, endpoint):
    context = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
    for given, expected in ((context, json.loads(context)["traceparent"]), (None, None), ("damaged", None)):
        request = InferenceRequest({"text_input": np.array([b"hello"], object)}, trace_context=given)
        (sender,) = glue.ask(request)
        assert sender.ended.wait(BOUND)
        assert sender.error() is None, sender.error()
        assert endpoint.headers[-1].get("traceparent") == expected


def test_responses_are_the_outputs_of_its_config(glue):
    image, audio = np.array([b"file"], object), np.zeros(1600, np.float32)
    (plain,) = glue.ask(question(image=image, audio=audio))
    assert plain.ended.wait(BOUND)
    assert not [sent for sent in plain.responses if "trace" in sent.outputs]
    inputs = {"text_input": np.array([b"hello"], object), "image": image, "audio": audio}
    (sender,) = glue.ask(InferenceRequest(inputs, {"trace": True}))
    assert sender.ended.wait(BOUND)
    assert sender.error() is None, sender.error()
    assert sender.finals == 1
    declared = {one.name: one for one in CONFIG.output}
    seen: set[str] = set()
    for sent in sender.responses:
        for name, array in sent.outputs.items():
            seen.add(name)
            kind = model_config_pb2.DataType.Name(declared[name].data_type).removeprefix("TYPE_")
            assert array.dtype == (np.object_ if kind == "STRING" else triton_to_np_dtype(kind)), name
            assert array.ndim == 1
            assert declared[name].dims[0] in (-1, len(array)), name
    assert seen == set(declared)
    assert json.loads(sender.responses[-1].outputs["timing"][0])["total"] > 0


def test_a_refusal_is_final_and_leaves_the_others_alone(glue):
    empty, served, unknown = glue.ask(
        InferenceRequest({}), question(), InferenceRequest({"text_input": np.array([b"a"], object)}, {"x": 1})
    )
    assert empty.error().code == TritonError.INVALID_ARG
    assert empty.error().message().startswith("INVALID_ARG: text_input, audio: at least one of them")
    assert "unknown parameter 'x'" in unknown.error().message()
    assert served.ended.wait(BOUND)
    assert served.error() is None
    assert (empty.finals, served.finals, unknown.finals) == (1, 1, 1)


def test_an_exception_anywhere_in_execute_is_a_final_error(glue, capsys):
    (sender,) = glue.ask(InferenceRequest({"text_input": np.array(5)}))
    assert sender.finals == 1
    assert sender.error().message() == "INTERNAL: the model failed on this request; the server's log says why"
    assert "Traceback" in capsys.readouterr().err


def test_a_client_that_leaves_gets_one_end_and_is_not_looked_at_again(glue):
    def endless(_: Any) -> Iterator[Any]:
        while not glue.endpoint.ended.is_set():
            yield llm_outputs("said")

    glue.endpoint.answer = endless
    (sender,) = glue.ask(question())
    wait_until(lambda: bool(sender.responses))
    sender.cancelled = True
    assert sender.ended.wait(BOUND)
    assert sender.error().code == TritonError.CANCELLED
    wait_until(lambda: not glue.model.service._requests)
    assert (sender.finals, sender.looks_after_final) == (1, 0)
    assert glue.endpoint.ended.wait(BOUND), "the llm's answer is ended, too"
