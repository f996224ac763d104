import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from trimodal.client.errors import ProtocolError
from trimodal.client.transports.base import Request
from trimodal.client.transports.tensors import decode, encode, strings
from trimodal.errors import InvalidArgument


def answer(name, datatype, shape, raw):
    message = service_pb2.ModelInferResponse(model_name="m")
    message.outputs.add(name=name, datatype=datatype, shape=shape)
    message.raw_output_contents.append(raw)
    return message


@pytest.mark.parametrize(
    ("array", "datatype"),
    [
        (np.array([1, -2], np.int32), "INT32"),
        (np.array([[1 << 63]], np.uint64), "UINT64"),
        (np.array([[0.5, 2]], np.float32), "FP32"),
        (np.array([True]), "BOOL"),
        (strings([b"", "日本".encode(), b"\xff\x00"]), "BYTES"),
    ],
)
def test_there_and_back(array, datatype):
    message = encode(Request("m", {"x": array}, "an-id"))
    assert (message.model_name, message.id, message.inputs[0].datatype) == ("m", "an-id", datatype)
    back = decode(answer("x", datatype, message.inputs[0].shape, message.raw_input_contents[0]))["x"]
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


def test_strings_are_written_as_tritonclient_does():
    array = strings([b"one", b"", "zwölf".encode()])
    message = encode(Request("m", {"x": array}))
    assert message.raw_input_contents[0] == serialize_byte_tensor(array).item()


def test_nothing_is_asked_of_outputs_whatever_parameters_a_caller_has():
    """Classes of a text (`classification` of an output) end Triton 2.51."""
    message = encode(Request("vision", {"x": strings([b"one"])}, parameters={"classification": 1}))
    assert not message.outputs


@pytest.mark.parametrize(
    ("datatype", "shape", "raw"),
    [("FP32", [2], b"\0\0\0\0"), ("FP32", [1], b"\0"), ("BF99", [1], b""), ("BYTES", [1], b"\x09\0\0\0cut")],
)
def test_what_cannot_be_read(datatype, shape, raw):
    with pytest.raises(ProtocolError, match="output 'x' of model 'm'"):
        decode(answer("x", datatype, shape, raw))
    message = answer("x", datatype, shape, raw)
    del message.raw_output_contents[:]
    with pytest.raises(ProtocolError, match="not raw bytes"):
        decode(message)


def test_parameters_keep_their_types():
    parameters = {"sequence_id": (1 << 63) - 1, "sequence_start": True, "step_s": 0.5, "policy": "vad"}
    message = encode(Request("speech", {}, parameters=parameters))
    kinds = {name: one.WhichOneof("parameter_choice") for name, one in message.parameters.items()}
    assert kinds == {
        "sequence_id": "int64_param",
        "sequence_start": "bool_param",
        "step_s": "double_param",
        "policy": "string_param",
    }
    assert message.parameters["sequence_id"].int64_param == (1 << 63) - 1
    with pytest.raises(InvalidArgument, match="step_s is float32: bool, int, float or str is needed"):
        encode(Request("speech", {}, parameters={"step_s": np.float32(1)}))
    for value in (1 << 63, "\ud800"):
        with pytest.raises(InvalidArgument, match="step_s is .*: no request can carry it"):
            encode(Request("speech", {}, parameters={"step_s": value}))
