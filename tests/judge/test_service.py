import numpy as np
import pytest

from trimodal.errors import ArtefactError, InvalidArgument
from trimodal.judge.engines.fake import FakeJudge
from trimodal.judge.service import JudgeService
from trimodal.judge.settings import JudgeSettings
from trimodal.metrics import MemoryMetrics


@pytest.fixture
def metrics():
    return MemoryMetrics()


def service(metrics, **settings):
    return JudgeService(FakeJudge(), JudgeSettings(artefact="x", **settings), metrics)


def pairs(metrics, outcome):
    return metrics.get("trimodal_judge_pairs_total", {"outcome": outcome}).value


def test_one_run_for_all_good_requests_and_each_gets_its_own(metrics):
    requests = [([b"a b", b"a"], [b"b A", b"b"]), ([b"\xff"], [b"a"]), ([b"COLOUR"], [b"color"])]
    first, bad, last = service(metrics).judge(requests)
    np.testing.assert_array_equal(first, [1, 0])
    assert isinstance(bad, InvalidArgument)
    np.testing.assert_array_equal(last, [1])
    assert metrics.get("trimodal_judge_batch_size", {}).observations == [3]
    assert (pairs(metrics, "judged"), pairs(metrics, "refused")) == (3, 1)


@pytest.mark.parametrize(
    ("question", "other", "told"),
    [
        (b"", b"a", "question: empty; at least one word is needed"),
        (b"a", b" \n\t", "other: empty; at least one word is needed"),
        (b"a", b"caf\xe9 au lait", "other is not valid UTF-8: byte 3 cannot be decoded"),
        (b"x" * 1_000_000, b"a", "question: 1000000 bytes; at most 20 are accepted"),
    ],
)
def test_refuses_with_a_sentence_that_names_field_and_limit(metrics, question, other, told):
    (outcome,) = service(metrics, max_bytes=20).judge([([question], [other])])
    assert str(outcome) == told
    assert metrics.get("trimodal_judge_batch_size", {}).observations == []


def test_opening_names_what_is_missing(tmp_path, metrics):
    settings = JudgeSettings(artefact="onnx-int8", intra_op_threads=1)
    with pytest.raises(ArtefactError, match="no built judge engine in .*onnx-int8"):
        JudgeService.open(tmp_path, settings, metrics)
    fake = JudgeService.open(tmp_path, JudgeSettings(artefact="x", engine="fake"), metrics)
    assert fake.judge([([b"a"], [b"a"])])[0].tolist() == [1.0]
