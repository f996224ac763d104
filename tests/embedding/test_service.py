import numpy as np
import pytest

from trimodal.embedding.engines.fake import FakeEmbedder
from trimodal.embedding.service import EmbeddingService, Texts, read_texts
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
    answered, bad, again = service(metrics).embed([Texts([b"a", b"b"]), Texts([b"\xff"]), Texts([b"a"])])
    first, second = answered.vectors, again.vectors
    assert (answered.tokens, again.tokens) == ((1, 1), (1,))
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
    (outcome,) = service(metrics, max_bytes=20).embed([Texts(request_)])
    assert str(outcome) == told
    assert metrics.get("trimodal_embedding_batch_size", {}).observations == []


def test_what_has_no_token_for_the_model_is_refused_alone(metrics):
    class Deaf(FakeEmbedder):
        def embed(self, texts):
            embedded = super().embed(texts)
            return type(embedded)(embedded.vectors, tuple(0 if text == "\x01" else 1 for text in texts))

    outcomes = EmbeddingService(Deaf(), EmbeddingSettings(artefact="x"), metrics).embed(
        [Texts([b"a"]), Texts([b"b", b"\x01"]), Texts([b"c"])]
    )
    assert str(outcomes[1]) == "text_input[1]: nothing in it that the model can read"
    assert outcomes[0].vectors.shape == outcomes[2].vectors.shape == (1, 384)


def test_cut_texts_are_counted(metrics):
    cut, whole = service(metrics).embed([Texts([b"one two three four five"]), Texts([b"one two three four"])])
    assert (texts(metrics, "truncated"), texts(metrics, "whole")) == (1, 1)
    assert cut.tokens == whole.tokens == (4,)


def test_who_wants_nothing_cut_is_refused_with_the_limit_and_alone(metrics):
    long, short = b"one two three four five", b"one"
    asked = [Texts([short, long], truncate=False), Texts([short], truncate=False), Texts([long])]
    refused, *answered = service(metrics).embed(asked)
    assert str(refused) == "text_input[1] has 5 tokens: this model reads 4; truncate cuts it"
    assert [one.tokens for one in answered] == [(1,), (4,)]


def test_truncate_is_a_parameter_of_the_request():
    assert read_texts([b"a"], {}).truncate
    assert not read_texts([b"a"], {"truncate": False}).truncate
    with pytest.raises(InvalidArgument, match="truncate: true or false"):
        read_texts([b"a"], {"truncate": "no"})


def test_opening_names_what_is_missing(tmp_path, metrics):
    settings = EmbeddingSettings(artefact="onnx-fp32", intra_op_threads=1)
    with pytest.raises(ArtefactError, match="no built embedding engine in .*onnx-fp32"):
        EmbeddingService.open(tmp_path, settings, metrics)
    fake = EmbeddingService.open(tmp_path, EmbeddingSettings(artefact="x", engine="fake"), metrics)
    assert fake.embed([Texts([b"a"])])[0].vectors.shape == (1, 384)
