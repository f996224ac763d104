from types import SimpleNamespace

from trimodal.errors import InvalidArgument, Unavailable
from trimodal.glue import answer_batch, stream_error_response, version_directory


class TritonError(Exception):
    INVALID_ARG, UNAVAILABLE, CANCELLED, INTERNAL = "invalid", "unavailable", "cancelled", "internal"

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def response(output_tensors=(), error=None):
    return output_tensors if error is None else (error.code, str(error))


PB_UTILS = SimpleNamespace(TritonError=TritonError, InferenceResponse=response)


def read(request):
    if request == "unreadable":
        raise InvalidArgument("x: unreadable")
    if request == "surprise":
        raise KeyError("/a/path")
    return request


def test_each_request_gets_its_own_answer_in_order(capsys):
    def serve(values):
        return [Unavailable("later") if value == "busy" else value.upper() for value in values]

    requests = ["a", "unreadable", "busy", "surprise", "b"]
    answers = answer_batch(PB_UTILS, requests, read, serve, lambda result: [result])
    assert answers[0] == ["A"]
    assert answers[1] == ("invalid", "x: unreadable")
    assert answers[2] == ("unavailable", "later")
    assert answers[3] == ("internal", "the model failed on this request; the server's log says why")
    assert answers[4] == ["B"]
    assert "/a/path" in capsys.readouterr().err


def test_a_failing_service_answers_every_request(capsys):
    def serve(values):
        raise RuntimeError("secret")

    answers = answer_batch(PB_UTILS, ["a", "unreadable", "b"], read, serve, lambda result: [result])
    assert [answer[0] for answer in answers] == ["internal", "invalid", "internal"]
    assert "secret" not in str(answers)
    assert "secret" in capsys.readouterr().err


def test_a_service_that_loses_a_result_is_an_error_for_all(capsys):
    answers = answer_batch(PB_UTILS, ["a", "b"], read, lambda values: values[:1], lambda result: [result])
    assert [answer[0] for answer in answers] == ["internal", "internal"]
    assert "2 requests were served and 1 results came back" in capsys.readouterr().err


def test_a_result_that_cannot_be_written_fails_alone(capsys):
    def write(result):
        return [1 / result]

    answers = answer_batch(PB_UTILS, [1, 0, 2], read, lambda values: values, write)
    assert answers[0] == [1.0]
    assert answers[1][0] == "internal"
    assert answers[2] == [0.5]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_version_directory_is_the_loaded_one():
    args = {"model_repository": "/models/vision_rank", "model_version": "2"}
    assert str(version_directory(args)) == "/models/vision_rank/2"


def test_the_error_of_a_stream_begins_with_its_code(capsys):
    assert stream_error_response(PB_UTILS, Unavailable("later")) == ("unavailable", "UNAVAILABLE: later")
    code, message = stream_error_response(PB_UTILS, KeyError("/a/path"))
    assert (code, message.split(":")[0]) == ("internal", "INTERNAL")
    assert "/a/path" not in message
