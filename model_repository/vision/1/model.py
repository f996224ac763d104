"""Glue of vision in one model: `image` bytes in, `labels` and `scores` out. The work is in trimodal.vision.

Profile tensorrt has a pipeline of three models in its place and does not load this file.
"""

import triton_python_backend_utils as pb_utils

from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.stub import begin, ended_if_stalled
from trimodal.vision.settings import VisionSettings
from trimodal.vision.steps import VisionStep


class TritonPythonModel:
    def initialize(self, args):
        begin(args)
        settings = parse_parameters(
            VisionSettings,
            parameters_of(args["model_config"]),
            source="vision/configs/cpu.pbtxt (profile cuda: configs/cuda.pbtxt)",
        )
        self.stall_timeout_s = settings.stall_timeout_s
        self.metrics = TritonMetrics(pb_utils, args["model_name"], args["model_version"])
        self.service = VisionStep.open(version_directory(args), settings, self.metrics)

    def execute(self, requests):
        with ended_if_stalled(self.stall_timeout_s):
            return answer_batch(pb_utils, requests, read, self.service.classify, write, tells=True)

    def finalize(self):
        self.service.close()
        self.metrics.close()


def read(request):
    return pb_utils.get_input_tensor_by_name(request, "image").as_numpy().reshape(-1).tolist()


def write(ranked):
    labels, scores = ranked
    return [pb_utils.Tensor("labels", labels), pb_utils.Tensor("scores", scores)]
