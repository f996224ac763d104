"""A tiny Whisper with random weights, in FP32, as CTranslate2 alone and as OpenVINO runs it."""

from __future__ import annotations

import pytest

from tests.speech.whisper.checkpoints import LANGUAGES, convert, write_checkpoint
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings


def settings(**changed):
    return RecogniseSettings(artefact="x", intra_op_threads=1, **changed)


@pytest.fixture(scope="module")
def artefact(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whisper")
    write_checkpoint(directory / "checkpoint", LANGUAGES)
    return convert(directory / "checkpoint", directory / "fp32", LANGUAGES)


@pytest.fixture(scope="module")
def engines(artefact):
    """CTranslate2's own, and that whose encoder and decoder are OpenVINO's."""
    both = [
        open_engine(artefact, settings(encoder=name, decoder=name)) for name in ("ctranslate2", "openvino")
    ]
    yield both
    for engine in both:
        engine.close()
