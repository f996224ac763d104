import json
import math
from dataclasses import replace

import numpy as np

from tests.llm.doubles.sinks import Collector
from tests.project.test_configs import profiles
from trimodal.errors import Unavailable
from trimodal.llm.request.outputs import Delta, Note, TokenLogprob, WholeAnswer, columns
from trimodal.llm.request.request import INPUTS
from trimodal.trace import span

KINDS = {"TYPE_STRING": np.object_, "TYPE_INT32": np.int32, "TYPE_FP32": np.float32}
FIRST = Delta("naïve", "", 3, 1, 2)
LAST = Delta("", "stop", 3, 1, 9, Note("semantic", 0.875, '{"messages": 2}', 0.25, 1.5))


def test_a_delta_has_the_usage_and_the_last_one_says_how_it_came_about() -> None:
    assert set(columns(FIRST)) == {
        "text_output",
        "finish_reason",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
    }
    last = {name: array[0] for name, array in columns(LAST).items()}
    assert last["cache"] == b"semantic"
    assert (last["similarity"], last["queue_ms"], last["predicted_ttft_ms"]) == (0.875, 250, 1500)
    assert last["trimmed"] == b'{"messages": 2}'
    assert columns(Delta("", "stop", note=Note()))["predicted_ttft_ms"][0] == -1, "JSON has no nan"


def test_names_and_types_are_those_of_every_profile() -> None:
    from tritonclient.grpc import model_config_pb2

    for _, model in profiles("llm").items():
        declared = {
            output.name: KINDS[model_config_pb2.DataType.Name(output.data_type)] for output in model.output
        }
        assert LAST.note
        note = replace(LAST.note, trace=[span("queue", 0, 1)])
        prompt = [TokenLogprob(b"a", math.nan)]
        told = columns(
            replace(LAST, logprobs=(), prompt_logprobs=prompt, reasoning="hm", reasoning_tokens=1, note=note)
        )
        assert {name: array.dtype for name, array in told.items()} == declared
        assert {name.name for name in model.input} == set(INPUTS)


def test_log_probabilities_are_as_openai_has_them_and_only_where_they_were_asked_for() -> None:
    top = (TokenLogprob(b"a", -0.25), TokenLogprob(b"\xf0\x9f", -2.0))
    delta = Delta("a", "", 5, 0, 1, logprobs=[TokenLogprob(b"a", -0.25, top)])
    assert json.loads(columns(delta)["logprobs"][0]) == [
        {
            "token": "a", "bytes": [97], "logprob": -0.25,
            "top_logprobs": [
                {"token": "a", "bytes": [97], "logprob": -0.25},
                {"token": "\\xf0\\x9f", "bytes": [240, 159], "logprob": -2.0},
            ],
        }
    ]  # fmt: skip
    assert json.loads(columns(Delta("", "stop", 5, 0, 1, logprobs=()))["logprobs"][0]) == []
    assert "logprobs" not in columns(Delta("a", "", 5, 0, 1))


def test_a_whole_answer_is_one_delta_with_the_last_usage_and_every_token() -> None:
    sink = Collector()
    whole = WholeAnswer(sink, "prompt: ")
    tokens = [TokenLogprob(b"a", -0.25), TokenLogprob(b"b", -0.5)]
    for token, delta in zip(tokens, (FIRST, LAST), strict=True):
        whole.send(replace(delta, logprobs=[token]))
    assert sink.deltas == [replace(LAST, text="prompt: naïve", logprobs=tokens)]
    sink.cancelled = True
    assert whole.is_cancelled()


def test_a_whole_answer_that_fails_is_an_error_alone() -> None:
    sink = Collector()
    whole = WholeAnswer(sink)
    whole.send(FIRST)
    whole.fail(Unavailable("gone"))
    assert (sink.deltas, str(sink.error)) == ([], "gone")
