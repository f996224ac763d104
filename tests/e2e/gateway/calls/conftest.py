"""The starter set, as `trimodal serve --gateway` serves it, for all calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import MODEL_REPOSITORY, Command, wait_until
from tests.e2e.gateway.calls.starter import Starter, opened


@pytest.fixture(scope="package")
def starter(_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    folder = tmp_path_factory.mktemp("starter")
    arguments = (
        "--model-repository", str(MODEL_REPOSITORY), "--gateway", "--gateway-port", "0",
        "--set", "llm.cache=exact", "--set", f"llm.cache_store={folder}/answers.sqlite",
        "--set", "llm.numerics=reproducible", "--set", "speech_recognize.artefact=ctranslate2-tiny.en",
    )  # fmt: skip
    with ExitStack() as stack:
        for _ in range(3):
            run = Command(*arguments)
            stack.callback(run.close)
            wait_until(
                lambda run=run: "Ready." in run.output or run.process.poll() is not None, "a start", 150.0
            )
            if "is in use" not in run.output:  # another test's server took a port that was free
                break
        run.wait_for("Ready.")
        (url,) = re.findall(r"OpenAI  (\S+)/v1, ", run.output)
        grpc = f"127.0.0.1:{run.grpc_port}"
        strict = stack.enter_context(opened(url, _strict_response_validation=True))
        yield Starter(url, grpc, strict, stack.enter_context(opened(url)))
