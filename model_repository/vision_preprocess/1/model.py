"""Glue of vision_preprocess: `image` bytes in, `pixels` out. What is done lies in trimodal.vision."""

import triton_python_backend_utils as pb_utils

from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.stub import begin
from trimodal.vision.settings import PreprocessSettings
from trimodal.vision.steps import PreprocessStep


class TritonPythonModel:
    def initialize(self, args):
        begin(args)
        settings = parse_parameters(
            PreprocessSettings,
            parameters_of(args["model_config"]),
            source="vision_preprocess/config.pbtxt",
        )
        self.service = PreprocessStep.open(
            version_directory(args),
            settings,
            TritonMetrics(pb_utils, args["model_name"], args["model_version"]),
        )

    def execute(self, requests):
        return answer_batch(pb_utils, requests, read, self.service.prepare, write)

    def finalize(self):
        self.service.close()


def read(request):
    return pb_utils.get_input_tensor_by_name(request, "image").as_numpy().reshape(-1).tolist()


def write(pixels):
    return [pb_utils.Tensor("pixels", pixels)]
