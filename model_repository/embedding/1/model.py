"""Glue of embedding: `text_input` in, `embedding` out. What is done lies in trimodal.embedding."""

import numpy as np
import triton_python_backend_utils as pb_utils

from trimodal.embedding.service import EmbeddingService, read_texts
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.settings import parameters_of, parse_parameters
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.metrics import TritonMetrics
from trimodal.triton.parameters import parameters
from trimodal.triton.stub import begin, ended_if_stalled


class TritonPythonModel:
    def initialize(self, args):
        begin(args)
        settings = parse_parameters(
            EmbeddingSettings,
            parameters_of(args["model_config"]),
            source="embedding/config.pbtxt (profile cpu: configs/cpu.pbtxt)",
        )
        self.stall_timeout_s = settings.stall_timeout_s
        self.service = EmbeddingService.open(
            version_directory(args),
            settings,
            TritonMetrics(pb_utils, args["model_name"], args["model_version"]),
        )

    def execute(self, requests):
        with ended_if_stalled(self.stall_timeout_s):
            serve, checkpoint = self.service.embed, self.service.checkpoint
            return answer_batch(pb_utils, requests, read, serve, write, tells=True, checkpoint=checkpoint)


def read(request):
    texts = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().reshape(-1).tolist()
    return read_texts(texts, parameters(request))


def write(embedded):
    tokens = np.array(embedded.tokens, np.int32).reshape(-1, 1)
    return [pb_utils.Tensor("embedding", embedded.vectors), pb_utils.Tensor("tokens", tokens)]
