"""Runs on CUDA through a double of the real signatures: it computes, so the figures must be right."""

import threading
from functools import partial

import numpy as np
import pytest

from tests.doubles import onnx_runtime
from tests.runtimes.test_gpu_fit import COMMAND, manifest
from trimodal.errors import ArtefactError, ServerError
from trimodal.runtimes.onnx_runner import make_runner, open_model
from trimodal.runtimes.onnx_session import OnnxSettings, open_session

pytest.importorskip("onnx")
rng = np.random.default_rng(0)


def pixels(rows, side=8):
    return rng.integers(0, 256, (rows, 3, side, side), dtype=np.uint8)


@pytest.fixture
def machine(monkeypatch):
    return onnx_runtime.install(monkeypatch)


@pytest.fixture
def run(tmp_path):
    """`run(device, sizes)`: a function from pixels to logits."""
    onnx_runtime.save_graph(tmp_path / "model.onnx")

    def make(device, sizes=(), host_rows=0):
        open_one = partial(open_session, tmp_path / "model.onnx", device=device, threads=1)
        runner = make_runner(open_one, device, sizes, host_rows)
        return lambda batch: runner.run({"pixels": batch}, "logits")

    return make


def sent(machine):
    return [asked["input_feed"]["pixels"] for asked in machine.named("Session.run")]


def rows(machine):
    return [len(batch) for batch in sent(machine)]


def check(run, batch):
    logits = run(batch)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, batch.mean(axis=(2, 3)), rtol=1e-6)
    return logits


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_any_batch_contiguous_or_not(run, machine, device):
    logits = run(device)
    batch = pixels(5)
    for some in (batch, batch[:1], batch[1::2], batch[:, ::-1], pixels(2, 16)):
        check(logits, some)


def test_the_processor_parts_large_batches(run, machine):
    logits = run("cpu", (1, 8), host_rows=3)
    for count in (1, 3, 8):
        check(logits, pixels(count))
    assert rows(machine) == [1, 3, 3, 3, 2]


def test_each_size_has_its_own_session_which_never_sees_another(run, machine):
    logits = run("cuda", (8, 1, 4))
    assert len(machine.named("InferenceSession.__init__")) == 3
    for count in (1, 2, 4, 3, 7, 8, 1):
        check(logits, pixels(count))
    assert rows(machine) == [1, 4, 4, 4, 8, 8, 1]
    seen = {}
    for asked in machine.named("Session.run"):
        seen.setdefault(asked["self"], set()).add(len(asked["input_feed"]["pixels"]))
    assert sorted(map(tuple, seen.values())) == [(1,), (4,), (8,)]


def test_a_batch_above_the_largest_size_is_parted(run, machine):
    logits = run("cuda", (1, 4))
    check(logits, pixels(9))
    assert rows(machine) == [4, 4, 1]


def test_rows_that_fill_up_a_batch_are_zero(run, machine):
    logits = run("cuda", (4,))
    first = pixels(4)
    answer = check(logits, first)
    check(logits, pixels(3))
    np.testing.assert_allclose(answer, first.mean(axis=(2, 3)), rtol=1e-6)  # it stays as it was
    last = sent(machine)[-1]
    assert not last[3:].any()
    assert last[:3].any()


def test_a_gpu_that_fails_is_one_sentence_and_may_recover(run, machine):
    logits = run("cuda", (4,))
    machine.fails = RuntimeError("[ONNXRuntimeError] : 11 : EP_FAIL : cuDNN is not available\nstack of calls")
    with pytest.raises(ServerError) as caught:
        logits(pixels(3))
    assert str(caught.value) == (
        "the GPU fails on a batch of 4 ([ONNXRuntimeError] : 11 : EP_FAIL : cuDNN is not available): "
        "`trimodal doctor --profile cuda` tells what is missing"
    )
    machine.fails = None
    check(logits, pixels(3))


def test_threads_take_turns(run, machine):
    logits = run("cuda", (1, 4))
    failures = []

    def work(rows):
        try:
            for _ in range(20):
                check(logits, pixels(rows))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 3, 4, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures


def test_a_checkpoint_that_is_pinned_is_compared(tmp_path):
    onnx_runtime.save_graph(tmp_path / "model.onnx")
    pinned = OnnxSettings(artefact="x", intra_op_threads=1, checkpoint_sha256="abcdef")  # how it begins
    logits = open_model(tmp_path, manifest(), pinned).run({"pixels": pixels(2)}, "logits")
    assert logits.shape == (2, 3)
    with pytest.raises(ArtefactError, match=f"hash abcdef012345, not ffff: build again with: {COMMAND}"):
        open_model(tmp_path, manifest(), pinned.model_copy(update={"checkpoint_sha256": "ffff"}))
