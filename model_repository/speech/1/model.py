"""Glue of speech: chunks of many streams in, words out. What is done lies in trimodal.speech."""

from functools import partial

import triton_python_backend_utils as pb_utils

from trimodal.errors import as_request_error
from trimodal.runtimes.heap import give_back_large_blocks
from trimodal.settings import parameters_of, parse_parameters
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.recogniser import recognise
from trimodal.speech.live.request import read_chunk
from trimodal.speech.live.service import SpeechService
from trimodal.speech.session.vad import detectors
from trimodal.speech.settings import SpeechSettings
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.parameters import answer_probe, parameters
from trimodal.triton.responses import error_response
from trimodal.triton.stub import begin

START = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
END = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        begin(args, alone=True)
        give_back_large_blocks()
        given = parameters_of(args["model_config"])
        settings = parse_parameters(SpeechSettings, given, source="speech/config.pbtxt")
        self.metrics = TritonMetrics(pb_utils, args["model_name"], args["model_version"])
        self.service = SpeechService(
            settings,
            partial(recognise, pb_utils, settings.recognizer),
            detectors(settings.vad),
            SpeechMetrics(self.metrics, args["model_name"]),
        )

    def execute(self, requests):
        for request in requests:
            sink = ResponseSink(request.get_response_sender())
            stream = request.correlation_id()  # as a tensor, texts that begin alike would be one number
            start, end = (bool(request.flags() & flag) for flag in (START, END))
            try:
                if answer_probe(pb_utils, request):
                    continue
                inputs = {name: values(request, name) for name in ("audio", "audio_int16")}
                self.service.submit(read_chunk(stream, start, end, inputs, parameters(request)), sink)
            except Exception as error:
                ended = stream if start or end else None
                self.service.refuse(sink, as_request_error(error, request.request_id()), ended=ended)

    def finalize(self):
        self.service.close()
        self.metrics.close()


def values(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


class ResponseSink:
    """Where one request's answer goes. The model is not decoupled: there is exactly one."""

    def __init__(self, sender):
        self.sender = sender

    def answer(self, update, *, final):
        outputs = [pb_utils.Tensor(name, array) for name, array in update.tensors(final=final).items()]
        self.sender.send(pb_utils.InferenceResponse(output_tensors=outputs), flags=FINAL)

    def is_cancelled(self):
        return self.sender.is_cancelled()

    def fail(self, error):
        self.sender.send(error_response(pb_utils, error), flags=FINAL)
