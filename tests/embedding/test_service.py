import numpy as np
import pytest

from trimodal.embedding.engines.fake import FakeEmbedder
from trimodal.embedding.service import EmbeddingService
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import ArtefactError, InvalidArgument
from trimodal.metrics import MemoryMetrics


@pytest.fixture
def metrics():
    return MemoryMetrics()


def service(metrics, **settings):
    return EmbeddingService(
        FakeEmbedder(16, max_tokens=4), EmbeddingSettings(artefact="x", **settings), metrics
    )


def texts(metrics, outcome):
    return metrics.get("trimodal_embedding_texts_total", {"outcome": outcome}).value


def test_one_run_for_all_good_requests_and_each_gets_its_own(metrics):
    first, bad, second = service(metrics).embed([[b"a", b"b"], [b"\xff"], [b"a"]])
    assert first.shape == (2, 16)
    assert isinstance(bad, InvalidArgument)
    np.testing.assert_array_equal(second[0], first[0])
    assert abs(float(first[0] @ first[1])) < 0.9
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)
    assert metrics.get("trimodal_embedding_batch_size", {}).observations == [3]
    assert (texts(metrics, "whole"), texts(metrics, "refused")) == (3, 1)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ([b""], "text_input: empty; at least one word is needed"),
        ([b" \n\t"], "text_input: empty; at least one word is needed"),
        ([b"ok", b"caf\xe9 au lait"], "text_input[1] is not valid UTF-8: byte 3 cannot be decoded"),
        ([b"x" * 21], "text_input: 21 bytes; at most 20 are accepted"),
    ],
)
def test_refuses_with_a_sentence_that_names_field_and_limit(metrics, request_, told):
    (outcome,) = service(metrics, max_bytes=20).embed([request_])
    assert str(outcome) == told
    assert metrics.get("trimodal_embedding_batch_size", {}).observations == []


def test_what_has_no_token_for_the_model_is_refused_alone(metrics):
    class Deaf(FakeEmbedder):
        def embed(self, texts):
            embedded = super().embed(texts)
            return type(embedded)(embedded.vectors, tuple(0 if text == "\x01" else 1 for text in texts))

    outcomes = EmbeddingService(Deaf(), EmbeddingSettings(artefact="x"), metrics).embed(
        [[b"a"], [b"b", b"\x01"], [b"c"]]
    )
    assert str(outcomes[1]) == "text_input[1]: nothing in it that the model can read"
    assert outcomes[0].shape == outcomes[2].shape == (1, 384)


def test_cut_texts_are_counted(metrics):
    service(metrics).embed([[b"one two three four five"], [b"one two three four"]])
    assert (texts(metrics, "truncated"), texts(metrics, "whole")) == (1, 1)


def test_opening_names_what_is_missing(tmp_path, metrics):
    settings = EmbeddingSettings(artefact="onnx-fp32", intra_op_threads=1)
    with pytest.raises(ArtefactError, match="no built embedding engine in .*onnx-fp32"):
        EmbeddingService.open(tmp_path, settings, metrics)
    fake = EmbeddingService.open(tmp_path, EmbeddingSettings(artefact="x", engine="fake"), metrics)
    assert fake.embed([[b"a"]])[0].shape == (1, 384)
