"""Counts up to `count`, one response every `interval_ms`, each request in a thread of its own."""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

from trimodal.settings import Settings, parameters_of, parse_parameters


class TickerSettings(Settings):
    interval_ms: int = 100


class TritonPythonModel:
    def initialize(self, args):
        parameters = parameters_of(args["model_config"])
        settings = parse_parameters(TickerSettings, parameters, source="ticker/config.pbtxt")
        self.interval = settings.interval_ms / 1000
        self.threads = []
        # The launcher's drain knows by this gauge that a model is done, also while clients keep streams open.
        family = pb_utils.MetricFamily(
            name="trimodal_ticker_active_requests",
            description="Requests that are ticking",
            kind=pb_utils.MetricFamily.GAUGE,
        )
        self.active = family.Metric(labels={"model": args["model_name"]})
        self.family = family

    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "count").as_numpy()[0])
            self.active.increment(1)
            thread = threading.Thread(target=self.tick, args=(request.get_response_sender(), count))
            thread.start()
            self.threads.append(thread)

    def tick(self, sender, count):
        for number in range(count):
            if sender.is_cancelled():
                break
            tick = pb_utils.Tensor("tick", np.array([number], dtype=np.int32))
            sender.send(pb_utils.InferenceResponse([tick]))
            time.sleep(self.interval)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self.active.increment(-1)

    def finalize(self):
        for thread in self.threads:
            thread.join()
