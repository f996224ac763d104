"""Glue of vision_classify on ONNX Runtime: `pixels` in, `logits` out. The work is in trimodal.vision."""

import triton_python_backend_utils as pb_utils

from trimodal import logs
from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.vision.settings import ClassifySettings
from trimodal.vision.steps import ClassifyStep


class TritonPythonModel:
    def initialize(self, args):
        logs.configure(args["model_name"])
        settings = parse_parameters(
            ClassifySettings,
            parameters_of(args["model_config"]),
            source="vision_classify/configs/cpu.pbtxt (profile cuda: configs/cuda.pbtxt)",
        )
        self.service = ClassifyStep.open(version_directory(args), settings, TritonMetrics(pb_utils))

    def execute(self, requests):
        return answer_batch(pb_utils, requests, read, self.service.classify, write)


def read(request):
    return pb_utils.get_input_tensor_by_name(request, "pixels").as_numpy()


def write(logits):
    return [pb_utils.Tensor("logits", logits)]
