"""Glue of speech_recognize: windows of audio in, timed words out. What is done lies in trimodal.speech."""

import triton_python_backend_utils as pb_utils

from trimodal.errors import InvalidArgument
from trimodal.settings import parameters_of, parse_parameters
from trimodal.speech.recognise.request import RecogniseRequest
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.settings import RecogniseSettings
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.stub import begin, ended_if_stalled


class TritonPythonModel:
    def initialize(self, args):
        begin(args)
        settings = parse_parameters(
            RecogniseSettings,
            parameters_of(args["model_config"]),
            source="speech_recognize/configs/cpu.pbtxt (profile tensorrt: config.pbtxt)",
        )
        self.stall_timeout_s = settings.stall_timeout_s
        self.metrics = TritonMetrics(pb_utils, args["model_name"], args["model_version"])
        self.service = RecogniseService.open(version_directory(args), settings, self.metrics)

    def execute(self, requests):
        with ended_if_stalled(self.stall_timeout_s):
            return answer_batch(pb_utils, requests, read, self.service.recognise, write)

    def finalize(self):
        self.service.close()
        self.metrics.close()


def read(request):
    window = pb_utils.get_input_tensor_by_name(request, "window")
    if window is None:  # where inputs are optional, Triton counts them and does not look which there are
        raise InvalidArgument("window: missing")
    names = ("prompt", "language", "task", "temperatures", "prefix", "draft")
    given = (values(request, name) for name in names)
    return RecogniseRequest(window.as_numpy(), *given, values(request, "samples"))


def values(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().reshape(-1).tolist()


def write(recognized):
    return [pb_utils.Tensor(name, values) for name, values in recognized.tensors().items()]
