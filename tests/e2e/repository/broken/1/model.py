"""Fails to load in the way that the parameter `how` asks for."""

import os
import signal

from trimodal.errors import ArtefactError
from trimodal.settings import parameters_of


class TritonPythonModel:
    def initialize(self, args):
        how = parameters_of(args["model_config"])["how"]
        if how == "bug":
            return {}["missing"]
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ArtefactError("no built engine in broken/1/onnx-int8: build one first")

    def execute(self, requests):
        raise NotImplementedError("broken never loads")
