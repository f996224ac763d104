"""Glue of vision_rank: `logits` in, `labels` and `scores` out. What is done lies in trimodal.vision."""

import triton_python_backend_utils as pb_utils

from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.stub import begin
from trimodal.vision.rank import RankStep
from trimodal.vision.settings import RankSettings


class TritonPythonModel:
    def initialize(self, args):
        begin(args)
        settings = parse_parameters(
            RankSettings,
            parameters_of(args["model_config"]),
            source="vision_rank/config.pbtxt",
        )
        self.service = RankStep.open(version_directory(args), settings)

    def execute(self, requests):
        return answer_batch(pb_utils, requests, read, self.service.rank, write)


def read(request):
    return pb_utils.get_input_tensor_by_name(request, "logits").as_numpy()


def write(ranked):
    labels, scores = ranked
    return [pb_utils.Tensor("labels", labels), pb_utils.Tensor("scores", scores)]
