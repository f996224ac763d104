"""The status panel: figures of this page's requests, and the gateway's own where it tells them."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.gateway.conftest import Serve
from tests.gateway.page.conftest import Open, ask

pytestmark = pytest.mark.slow

METRICS = """# HELP trimodal_gateway_in_flight Requests that are being answered
# TYPE trimodal_gateway_in_flight gauge
trimodal_gateway_in_flight 3.0
trimodal_gateway_requests_total{endpoint="/v1/chat/completions",model="llm",status="200",tenant=""} 7.0
trimodal_gateway_requests_total{endpoint="/v1/models",model="",status="200",tenant=""} 3.0
trimodal_gateway_ttft_seconds_bucket{endpoint="/v1/chat/completions",le="0.1",model="llm"} 0.0
trimodal_gateway_ttft_seconds_bucket{endpoint="/v1/chat/completions",le="0.2",model="llm"} 10.0
trimodal_gateway_ttft_seconds_bucket{endpoint="/v1/chat/completions",le="+Inf",model="llm"} 10.0
"""


def figures(page: Page, panel: str) -> dict[str, list[str]]:
    rows = page.locator(panel).get_by_role("row")
    texts = [row.locator("th, td").all_inner_texts() for row in rows.all()]
    return {name: values for name, *values in texts}


def test_percentiles_of_the_requests_of_this_page(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    expect(page.locator("#figures-count")).to_have_text("none yet")
    for count in (1, 2, 3):
        ask(page, "one")
        expect(page.locator("#figures-count")).to_have_text(f"of {count}")
    shown = figures(page, "#figures")
    assert list(shown) == ["first token", "whole answer", "tokens/s"]
    assert all(text.endswith(" ms") for text in (*shown["first token"], *shown["whole answer"]))
    page.reload()
    assert figures(page, "#figures") == shown


def test_figures_of_the_server(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    expect(page.locator("#models li")).to_have_count(5)
    page.route("**/metrics", lambda route: route.fulfill(body=METRICS, content_type="text/plain"))
    page.reload()
    expect(page.locator("#server-figures")).to_be_visible()
    expect(page.locator("#server-counts")).to_have_text("7 requests to models, 0 refusals, 2 in flight")
    assert figures(page, "#server-rows") == {
        "first token": ["150 ms", "195 ms"],
        "whole answer": ["–", "–"],
    }


def test_a_gateway_that_tells_this_caller_no_figures(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.route("**/metrics", lambda route: route.fulfill(status=403, json={"error": {"message": "no"}}))
    page.reload()
    expect(page.locator("#models li")).to_have_count(5)
    expect(page.locator("#server-figures")).to_be_hidden()


def test_figures_that_were_out_of_reach_for_a_while(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.route("**/metrics", lambda route: route.fulfill(status=429, json={"error": {"message": "later"}}))
    with page.expect_response("**/metrics"):
        page.reload()
    expect(page.locator("#server-figures")).to_be_hidden()
    page.unroute("**/metrics")
    expect(page.locator("#server-figures")).to_be_visible()
