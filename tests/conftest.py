"""What all tests share: which run when, on which of xdist's workers; doubles of the GPU libraries."""

from __future__ import annotations

import gc
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from tests.doubles.gpu_libraries import Recorder, install

# A busy machine takes longer than the 200 ms that hypothesis allows an example.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A background job of a script ignores Ctrl-C, and so would the commands that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup they would ignore a closed terminal. The suite goes on to: a handler is no command's by descent.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# Collecting keeps all that it makes: looking for garbage in it takes a third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Lets the garbage collector work again, but never look at modules and tests."""
    gc.collect()
    gc.freeze()
    gc.unfreeze = lambda: None  # type: ignore[assignment]  # a load run's end would undo it for all tests after
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves `slow` tests out unless -m names them; puts the long ones first: workers end together then."""
    if "slow" not in config.getoption("markexpr"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    long = ("build", "e2e")
    items.sort(key=lambda item: [not item.get_closest_marker(mark) for mark in long])


# One worker for all that imports torch and transformers, several seconds of one core each time.
TORCH = (
    "tests/builders/",
    "tests/speech/engines/",
    "tests/speech/whisper/",
    "tests/plan/test_architecture",
)
# And one for what needs the language model that the first of these builds: others would wait for it.
SHARED = ("tests/e2e/", "tests/gateway/page/", "tests/llm/engines/openvino/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives each file to one worker; where files share a server or imports that are slow, all of them."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            if file.startswith(TORCH):
                return "torch"
            return file.rpartition("/")[0] if file.startswith(SHARED) else file

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def one_torch_thread() -> None:
    """Steps of tiny models are the slower the more threads wait for each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(params=["10.14", "11.4"])
def tensorrt_double(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """TensorRT of each version: `module`, `recorder` and `version`."""
    recorder = Recorder()
    module = install(monkeypatch, f"tensorrt-{request.param}", recorder)
    return SimpleNamespace(module=module, recorder=recorder, version=request.param)


@pytest.fixture
def tensorrt_llm_double(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """TensorRT-LLM 1.2.1: `module`, `recorder` and `version`."""
    recorder = Recorder()
    module = install(monkeypatch, "tensorrt_llm-1.2", recorder)
    return SimpleNamespace(module=module, recorder=recorder, version=module.__version__)
