"""A table of calls of OpenAI's package to the demo server as `trimodal serve --gateway` starts it.

    pytest -m slow -s tests/e2e/gateway/test_openai_calls.py

prints it: name, milliseconds, what came.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import BOUND, MODEL_REPOSITORY, Command
from tests.e2e.gateway.calls import chat, failures, forms, live, media, texts  # noqa: F401  they fill TABLE
from tests.e2e.gateway.calls.table import TABLE, Call, Demo, opened
from tests.e2e.gateway.test_openai import gateway
from trimodal.gateway.keys import Key, add_key
from trimodal.server import ports

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

KEYS = (
    Key(name="metered", requests_per_minute=6000, tokens_per_minute=100_000),
    Key(name="narrow", models=("vision",)),
    Key(name="poor", tokens_per_minute=30),
    Key(name="single", max_streams=1),
)


@pytest.fixture(scope="module")
def demo(_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    file = folder / "keys.toml"
    keys = {key.name: add_key(file, key) for key in KEYS}
    nothing = ports.choose("127.0.0.1", {"--grpc-port": 0})["--grpc-port"]
    run = Command(
        "--model-repository", str(MODEL_REPOSITORY), "--gateway", "--gateway-port", "0",
        "--set", "llm.cache=exact", "--set", f"llm.cache_store={folder}/answers.sqlite",
    )  # fmt: skip
    with ExitStack() as stack:
        stack.callback(run.close)
        run.wait_for("Ready.")
        (url,) = re.findall(r"OpenAI  (\S+)/v1, ", run.output)
        keyed = stack.enter_context(gateway(f"127.0.0.1:{run.grpc_port}", keys=file))
        down = stack.enter_context(gateway(f"127.0.0.1:{nothing}"))
        strict = stack.enter_context(opened(url, _strict_response_validation=True))
        yield Demo(url, keyed, file, keys, down, strict, stack.enter_context(opened(url)))


@pytest.fixture(scope="module")
def lines() -> Iterator[list[str]]:
    """Gets a line from each call; they are printed after the last."""
    lines: list[str] = []
    yield lines
    print(f"\n\n{'call':<49}     ms  what came", *lines, sep="\n")


def test_the_table_is_long() -> None:
    assert len({one.name for one in TABLE}) == len(TABLE) >= 60


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # openai 3.54: translations
@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
def test_a_call(demo: Demo, lines: list[str], one: Call) -> None:
    began = time.perf_counter()
    came = one.make(demo)
    if asyncio.iscoroutine(came):
        came = asyncio.run(asyncio.wait_for(came, BOUND))
    milliseconds = (time.perf_counter() - began) * 1e3
    lines.append(f"{one.name:<49}{milliseconds:7.0f}  {' '.join(came.split())[:90]}")
