"""Whose prompts find each other in the prefix cache."""

from tests.llm.doubles.sinks import FakeServer
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms

PROMPT = "x" * 200


def cached(server: FakeServer, **terms: str) -> int:
    """Tokens of the prompt that were in the cache."""
    asked = GenerationRequest(PROMPT, None, Sampling(2), terms=Terms(**terms))
    return server.submit(asked).wait().deltas[-1].cached_tokens


def test_tenants_share_it_where_the_operator_says_so_but_for_salted_ones() -> None:
    with FakeServer(prefix_cache_scope="shared") as server:
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
