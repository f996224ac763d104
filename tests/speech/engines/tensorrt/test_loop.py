"""The decode loop on torch's modules, on the CPU: buckets, ends, bounds, draws, a step that is replayed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders.scripts import Later
from tests.speech.whisper.checkpoints import CONTEXTS_S
from trimodal.speech.engines.graphs.rows import Row

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
torch = Later("torch")
frozen, on_torch = (Later(f"tests.speech.engines.tensorrt.{name}") for name in ("frozen", "torch_forward"))
bucket, loop = (Later(f"trimodal.speech.engines.tensorrt.{name}") for name in ("bucket", "loop"))
FRAMES = round(CONTEXTS_S[0] * 100)
FEATURES = np.random.default_rng(0).normal(size=(5, 80, FRAMES)).astype(np.float32)
BEFORE, TOKENS = 2, 8  # attention is kept from the third token of the opening on


@pytest.fixture(scope="module")
def model(checkpoint):
    engine = on_torch.open_on_torch(checkpoint, 6)
    yield engine.graphs
    engine.close()


def decode(model, features, bounds=(TOKENS,), temperature=0.0):
    rows = [Row(most_tokens=bounds[index % len(bounds)]) for index in range(len(features))]
    decoding = model.start(features)
    tokens = np.array([[300, 301, 302, 300 + index] for index in range(len(rows))])
    logits = decoding.open(tokens, BEFORE)
    decoding.write(rows, temperature)
    return rows, logits


def same(row, other):
    assert row.tokens == other.tokens
    assert row.made == other.made
    assert row.log_probability == pytest.approx(other.log_probability, abs=1e-4)
    for one, two in zip(row.attention, other.attention, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def rows_alone(model, rows, bounds=(TOKENS,)):
    """Row `index` of a batch, decoded with nobody beside it."""
    for index, row in enumerate(rows):
        alone = Row(most_tokens=bounds[index % len(bounds)])
        decoding = model.start(FEATURES[index : index + 1])
        decoding.open(np.array([[300, 301, 302, 300 + index]]), BEFORE)
        decoding.write([alone], 0.0)
        same(row, alone)


def test_what_lies_in_the_memory_disturbs_nobody(model):
    """The bucket's other rows, what an earlier window left, and NaN of one that overflowed."""
    expected, _ = decode(model, FEATURES[:3])
    buffers = model._buffers
    with torch.inference_mode():
        for tensor in (buffers.past, buffers.new, buffers.logits, buffers.attention, buffers.alignment):
            tensor.fill_(torch.nan)
        for tensor in (*buffers.crossed, buffers.features, buffers.noise, buffers.chances):
            tensor.fill_(torch.nan)
        buffers.made.fill_(7)
        buffers.at.fill_(3)
    found, _ = decode(model, FEATURES[:3])
    for row, other in zip(found, expected, strict=True):
        same(row, other)


def test_a_row_that_is_broken_disturbs_no_other(model):
    expected, _ = decode(model, FEATURES[:3])
    broken = FEATURES[:3].copy()
    broken[1] = np.nan
    found, _ = decode(model, broken)
    for index in (0, 2):
        same(found[index], expected[index])


def test_rows_end_at_their_own_bounds_and_the_loop_with_the_last(model, monkeypatch):
    steps, step = [], bucket.Bucket._step
    monkeypatch.setattr(bucket.Bucket, "_step", lambda self: steps.append(1) or step(self))
    for kept in model._kept.values():
        monkeypatch.setattr(kept, "step", kept._step)
    bounds = (1, 3, 9)
    rows, _ = decode(model, FEATURES[:3], bounds)
    assert [len(row.tokens) <= bound for row, bound in zip(rows, bounds, strict=True)] == [True] * 3
    longest = max(row.made for row in rows)
    assert longest - 1 <= len(steps) < longest - 1 + loop.LOOK, "no more than until the next look"
    assert len(steps) <= max(bounds) - 1
    assert [weights.shape[1] for row in rows for weights in row.attention] == [1 + row.made for row in rows]
    rows_alone(model, rows, bounds)


def test_a_text_never_outgrows_the_places(model):
    buffers = model._buffers
    (row,), _ = decode(model, FEATURES[:1], (10_000,))
    assert len(row.tokens) <= 224
    decoding, row = model.start(FEATURES[:1]), Row(most_tokens=10_000)
    decoding.open(np.full((1, 440), 300), 438)
    decoding.write([row], 0.0)
    assert row.made <= 8
    assert int(buffers.at[0]) <= 448
    with pytest.raises(ValueError, match="449 tokens, and there are 448 places"):
        model.start(FEATURES[:1]).open(np.full((1, 449), 300), 0)
    with pytest.raises(ValueError, match="7 windows at once, and there is memory for 6"):
        model.start(np.zeros((7, 80, FRAMES), np.float32))


def test_a_step_that_is_recorded_once_decodes_every_batch(model, monkeypatch):
    """As a CUDA graph: of the host's values it has only those of when it was recorded."""
    expected = [decode(model, FEATURES[:3], (9, 4)), decode(model, FEATURES[2:5], (12,), 0.7)]
    fresh = [kept for key, kept in model._kept.items() if key[0] == 4]
    with torch.inference_mode():
        for kept in fresh:
            monkeypatch.setattr(kept, "step", frozen.freeze(kept._step))
    found = [decode(model, FEATURES[:3], (9, 4)), decode(model, FEATURES[2:5], (12,), 0.7)]
    for (rows, logits), (others, more) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(logits, more)
        for row, other in zip(rows, others, strict=True):
            same(row, other)


@pytest.mark.parametrize(
    ("refused", "replayed"),
    [
        pytest.param(range(0), (True, True), id="none", marks=pytest.mark.slow),
        pytest.param(range(1, 9), (True, False), id="second"),
        pytest.param(range(9), (False, False), id="all", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_captured_is_run_as_it_is_with_one_warning(
    model, monkeypatch, caplog, refused, replayed
):
    sizes = FEATURES[:2], FEATURES[:1], FEATURES  # a bucket each
    expected = [decode(model, features) for features in sizes]
    graphs = frozen.Graphs(monkeypatch, refused)
    monkeypatch.setattr(model, "_capture", loop.StepCapture(graphs))
    monkeypatch.setattr(model, "_kept", {})
    for features, (rows, logits), replays in zip(sizes, expected, (*replayed, replayed[1]), strict=True):
        before = graphs.replays
        found, more = decode(model, features)
        np.testing.assert_array_equal(logits, more)
        for row, other in zip(found, rows, strict=True):
            same(row, other)
        assert (graphs.replays > before) == replays
    assert graphs.captures == (refused.start + 1 if refused else 3), "none after one that failed"
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    sentence = "no CUDA graph of a decode step (operation not permitted when stream is capturing): steps are"
    assert [text[: len(sentence)] for text in told] == ([sentence] if refused else [])


def test_a_gpu_that_fails_for_good_is_no_failed_capture(monkeypatch):
    graphs = frozen.Graphs(monkeypatch, range(9))
    graphs.broken = True
    with pytest.raises(RuntimeError, match="an illegal memory access"):
        loop.StepCapture(graphs)(lambda: None)
