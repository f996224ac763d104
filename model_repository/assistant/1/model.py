"""Glue of assistant: questions in, findings and an answer out. What is done lies in trimodal.assistant."""

import triton_python_backend_utils as pb_utils

from trimodal.assistant.metrics import AssistantMetrics
from trimodal.assistant.models import Models
from trimodal.assistant.request import INPUTS, read_request
from trimodal.assistant.service import AssistantService
from trimodal.assistant.settings import AssistantSettings
from trimodal.errors import as_request_error
from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.parameters import answer_probe, parameters, trace_context
from trimodal.triton.responses import ResponseStream
from trimodal.triton.stub import begin


class TritonPythonModel:
    def initialize(self, args):
        begin(args, alone=True)
        given = parameters_of(args["model_config"]) | {"version_directory": str(version_directory(args))}
        self.settings = parse_parameters(AssistantSettings, given, source="assistant/config.pbtxt")
        self.metrics = TritonMetrics(pb_utils, args["model_name"], args["model_version"])
        self.counts = AssistantMetrics(self.metrics, args["model_name"])
        self.service = AssistantService(self.settings, Models(pb_utils, self.settings), self.counts)

    def execute(self, requests):
        for request in requests:
            sink = ResponseSink(pb_utils, request.get_response_sender())
            try:
                if answer_probe(pb_utils, request):
                    continue
                found = ((name, pb_utils.get_input_tensor_by_name(request, name)) for name in INPUTS)
                inputs = {name: tensor.as_numpy() for name, tensor in found if tensor is not None}
                known = (trace_context(request), request.request_id())
                self.service.submit(read_request(inputs, parameters(request), self.settings, *known), sink)
            except Exception as error:
                told = as_request_error(error, request.request_id())
                self.counts.ended(told)
                sink.fail(told)

    def finalize(self):
        self.service.close()
        self.metrics.close()


class ResponseSink(ResponseStream):
    """Where one request's findings and answer go."""

    def send(self, columns, *, final):
        self.respond(columns, final=final)
