"""Glue of judge: `question` and `other` in, `same` out. What is done lies in trimodal.judge."""

import triton_python_backend_utils as pb_utils

from trimodal.judge.service import JudgeService
from trimodal.judge.settings import JudgeSettings
from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.stub import begin, ended_if_stalled


class TritonPythonModel:
    def initialize(self, args):
        begin(args)
        settings = parse_parameters(
            JudgeSettings,
            parameters_of(args["model_config"]),
            source="judge/config.pbtxt (profile cpu: configs/cpu.pbtxt)",
        )
        self.stall_timeout_s = settings.stall_timeout_s
        self.service = JudgeService.open(
            version_directory(args),
            settings,
            TritonMetrics(pb_utils, args["model_name"], args["model_version"]),
        )

    def execute(self, requests):
        with ended_if_stalled(self.stall_timeout_s):
            serve, checkpoint = self.service.judge, self.service.checkpoint
            return answer_batch(pb_utils, requests, read, serve, write, checkpoint=checkpoint)


def read(request):
    names = ("question", "other")
    tensors = (pb_utils.get_input_tensor_by_name(request, name) for name in names)
    return tuple(tensor.as_numpy().reshape(-1).tolist() for tensor in tensors)


def write(same):
    return [pb_utils.Tensor("same", same.reshape(-1, 1))]
