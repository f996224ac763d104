import numpy as np

from tests.project.test_configs import profiles
from trimodal.llm.request.outputs import Delta, Note, columns
from trimodal.llm.request.request import INPUTS

KINDS = {"TYPE_STRING": np.object_, "TYPE_INT32": np.int32, "TYPE_FP32": np.float32}
FIRST = Delta("naïve", "", 3, 1, 2, 2)
LAST = Delta("", "stop", 3, 1, 9, 7, Note("semantic", 0.875, '{"messages": 2}', 0.25, 1.5))


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
    assert columns(Delta("", "stop", 1, 0, 0, 0, Note()))["predicted_ttft_ms"][0] == -1, "JSON has no nan"


def test_names_and_types_are_those_of_every_profile() -> None:
    from tritonclient.grpc import model_config_pb2

    for _, model in profiles("llm").items():
        declared = {
            output.name: KINDS[model_config_pb2.DataType.Name(output.data_type)] for output in model.output
        }
        assert {name: array.dtype for name, array in columns(LAST).items()} == declared
        assert {name.name for name in model.input} == set(INPUTS)
