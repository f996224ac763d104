"""Answers with the text that came in, after the parameter `greeting`."""

import numpy as np
import triton_python_backend_utils as pb_utils

from trimodal.settings import Settings, parameters_of, parse_parameters


class EchoSettings(Settings):
    greeting: str = ""
    device: str = "cpu"  # cuda: for the launcher it wants a GPU


class TritonPythonModel:
    def initialize(self, args):
        parameters = parameters_of(args["model_config"])
        self.greeting = parse_parameters(EchoSettings, parameters, source="echo/config.pbtxt").greeting

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
        answer = np.array([[self.greeting.encode() + row[0]] for row in text], dtype=np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", answer)])
