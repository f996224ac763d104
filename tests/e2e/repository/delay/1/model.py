"""Answers with its input after `seconds`."""

import time

import triton_python_backend_utils as pb_utils

from trimodal.settings import parameters_of


class TritonPythonModel:
    def initialize(self, args):
        self.seconds = float(parameters_of(args["model_config"])["seconds"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        time.sleep(self.seconds)
        text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", text)])
