"""The glue of turn on a fake stub, called as the gateway does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doubles import pb_utils
from tests.doubles.pb_utils import InferenceRequest
from trimodal.client.client import Client
from trimodal.client.transports.fake import FakeTransport

MODEL = Path(__file__).parents[2] / "model_repository" / "turn"
CONFIG, PARAMETERS = pb_utils.config_of(MODEL, "config.pbtxt")
QUIET = np.zeros((1, 8_000), np.float32)


def test_recordings_of_several_lengths_share_a_batch(module: Any) -> None:
    model = pb_utils.initialized(module, MODEL, PARAMETERS | {"engine": "fake"})
    requests = [InferenceRequest({"audio": audio}) for audio in (QUIET, QUIET[:, :0], QUIET[:, :1_600] + 0.5)]
    first, bad, last = model.execute(requests)
    assert list(first.outputs) == [one.name for one in CONFIG.output]
    assert first.outputs["finished"].tolist() == [[pytest.approx(0.9)]]
    assert last.outputs["finished"].tolist() == [[pytest.approx(0.1)]]
    assert last.outputs["finished"].dtype == np.float32
    assert bad.error.message().startswith("audio: 0 samples; 1 to 480000 are accepted")


def test_the_client_reads_it(module: Any) -> None:
    model = pb_utils.initialized(module, MODEL, PARAMETERS | {"engine": "fake"})

    def infer(request: Any) -> Any:
        (response,) = model.execute([InferenceRequest(dict(request.inputs))])
        return response.outputs

    client = Client(transport=FakeTransport(turn=infer))
    assert round(asyncio.run(client.finished(QUIET[0])), 3) == 0.9
