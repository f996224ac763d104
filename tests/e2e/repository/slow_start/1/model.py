"""Sleeps while it loads, then answers nothing: nobody asks it."""

import time

from trimodal.settings import parameters_of


class TritonPythonModel:
    def initialize(self, args):
        time.sleep(float(parameters_of(args["model_config"])["seconds"]))

    def execute(self, requests):
        raise NotImplementedError("slow_start answers no requests")
