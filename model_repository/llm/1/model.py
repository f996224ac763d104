"""Glue of llm: tensors → a request, deltas → decoupled responses. What is done lies in trimodal.llm."""

import os

import triton_python_backend_utils as pb_utils

from trimodal.errors import as_request_error
from trimodal.llm.answer_cache import open_answers
from trimodal.llm.engines.budgets import fitted
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.outputs import columns
from trimodal.llm.request.request import INPUTS, read_request
from trimodal.llm.service import LlmService
from trimodal.llm.settings import LlmSettings
from trimodal.paths import OPERATOR_VARIABLE, STOP_VARIABLE
from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.parameters import parameters
from trimodal.triton.responses import ResponseStream
from trimodal.triton.stub import begin


class TritonPythonModel:
    def initialize(self, args):
        begin(args, alone=True)
        given = parameters_of(args["model_config"]) | {
            "version_directory": str(version_directory(args)),
            "operator_hash": os.environ.get(OPERATOR_VARIABLE, ""),
        }
        source = "llm/configs/cpu.pbtxt (profile cuda: configs/cuda.pbtxt, tensorrt: config.pbtxt)"
        self.settings = fitted(parse_parameters(LlmSettings, given, source=source))
        self.metrics = TritonMetrics(pb_utils, args["model_name"], args["model_version"])
        self.counts = LlmMetrics(self.metrics, args["model_name"])
        folder = version_directory(args).parent
        answers, fingerprint = open_answers(self.settings, pb_utils, self.metrics, folder)
        self.service = LlmService(
            self.settings,
            self.counts,
            answers=answers,
            fingerprint=fingerprint,
            stop_file=os.environ.get(STOP_VARIABLE, ""),
        )

    def execute(self, requests):
        for request in requests:
            sink = ResponseSink(pb_utils, request.get_response_sender())
            try:
                with self.counts.refusals():
                    found = ((name, pb_utils.get_input_tensor_by_name(request, name)) for name in INPUTS)
                    inputs = {name: tensor.as_numpy() for name, tensor in found if tensor is not None}
                    wanted = read_request(inputs, parameters(request), self.settings)
                self.service.submit(wanted, sink, request.request_id())
            except Exception as error:
                sink.fail(as_request_error(error, request.request_id()))

    def finalize(self):
        self.service.close()
        self.metrics.close()


class ResponseSink(ResponseStream):
    """Where one request's answer goes."""

    def send(self, delta):
        self.respond(columns(delta), final=bool(delta.finish_reason))
