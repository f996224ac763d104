"""Glue of turn: `audio` in, `finished` out. What is done lies in trimodal.turn."""

import triton_python_backend_utils as pb_utils

from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.stub import begin, ended_if_stalled
from trimodal.turn.service import TurnService
from trimodal.turn.settings import TurnSettings


class TritonPythonModel:
    def initialize(self, args):
        begin(args)
        settings = parse_parameters(
            TurnSettings, parameters_of(args["model_config"]), source="turn/config.pbtxt"
        )
        self.stall_timeout_s = settings.stall_timeout_s
        self.service = TurnService.open(
            version_directory(args),
            settings,
            TritonMetrics(pb_utils, args["model_name"], args["model_version"]),
        )

    def execute(self, requests):
        with ended_if_stalled(self.stall_timeout_s):
            return answer_batch(pb_utils, requests, read, self.service.judge, write)


def read(request):
    return pb_utils.get_input_tensor_by_name(request, "audio").as_numpy()


def write(finished):
    return [pb_utils.Tensor("finished", finished.reshape(-1, 1))]
