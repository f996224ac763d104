"""Whose prompts find each other in the prefix cache."""

import pytest

from tests.llm.doubles.sinks import Collector, FakeServer
from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import EngineInfo, Sampling
from trimodal.llm.frontend.input_processor import InputProcessor
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.settings import LlmSettings

PROMPT = "x" * 200


def cached(server: FakeServer, **terms: str) -> int:
    """Tokens of the prompt that were in the cache."""
    sink = Collector()
    server.service.submit(GenerationRequest(PROMPT, None, Sampling(2), terms=Terms(**terms)), sink)
    return sink.wait().deltas[-1].cached_tokens


def test_a_prompt_is_found_by_its_own_tenant_alone() -> None:
    with FakeServer() as server:
        assert cached(server, tenant="acme") == 0
        assert cached(server, tenant="acme") == 192
        assert cached(server, tenant="umbrella") == 0
        assert cached(server) == 0


def test_tenants_share_it_where_the_operator_says_so_but_for_salted_ones() -> None:
    with FakeServer(prefix_cache="shared") as server:
        assert cached(server, tenant="acme") == 0
        assert cached(server, tenant="umbrella") == 192
        assert cached(server, tenant="acme", cache_salt="secret") == 0
        assert cached(server, tenant="umbrella", cache_salt="secret") == 192


def test_a_salt_of_one_tenant_is_not_that_of_another() -> None:
    with FakeServer() as server:
        assert cached(server, tenant="acme", cache_salt="secret") == 0
        assert cached(server, tenant="umbrella", cache_salt="secret") == 0
        assert cached(server, tenant='acme", "secret') == 0, "no name can pass for a name and a salt"
        assert cached(server, tenant="acme", cache_salt="secret") == 192


def test_an_engine_with_one_cache_for_all_refuses_a_salt() -> None:
    info = EngineInfo("openvino", 64, 32, 4, 2048)
    settings = LlmSettings(engine="fake")
    request = GenerationRequest("hello", None, Sampling(2), terms=Terms(cache_salt="secret"))
    with pytest.raises(InvalidArgument, match="^cache_salt: engine 'openvino' has one prefix cache for all"):
        InputProcessor(settings).process(request, Collector(), Admission(settings, info))


def test_the_operator_is_told_which_engines_keep_tenants_apart() -> None:
    with pytest.raises(ValueError, match="prefix_cache 'tenant' is of vllm and fake: engine 'openvino' has"):
        LlmSettings(engine="openvino", prefix_cache="tenant")
    assert LlmSettings(engine="vllm").prefix_cache == "tenant"
    assert LlmSettings(engine="openvino").prefix_cache == "shared"
