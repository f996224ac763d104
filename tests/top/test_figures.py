from __future__ import annotations

from tests.top.pages import gateway, served
from trimodal.top.figures import figures, ready_at_gateway
from trimodal.top.page import Change, read_page


def test_the_llm_s_figures() -> None:
    llm = figures(served(100, bad=20), None, {}).llm
    assert llm is not None
    assert (llm.requests_per_s, llm.errors_per_s, llm.engine_restarts) == (12, 2, 20)
    assert llm.prefix_hit_share == 100 / 200_000
    assert llm.ttft.per_s == 10
    assert llm.kv_usage == 0.95
    assert llm.speculating is False


def test_shares_of_two_versions_do_not_add_up() -> None:
    text = """\
# TYPE trimodal_llm_ttft_seconds histogram
trimodal_llm_ttft_seconds_count{model="llm",version="1"} 1
# TYPE trimodal_llm_kv_usage_ratio gauge
trimodal_llm_kv_usage_ratio{model="llm",version="1"} 0.7
trimodal_llm_kv_usage_ratio{model="llm",version="2"} 0.6
"""
    llm = figures(Change(read_page(text, 0.0), read_page(text, 1.0)), None, {}).llm
    assert llm is not None
    assert (llm.kv_usage, llm.acceptance) == (0.7, None)


def test_a_model_s_figures() -> None:
    (model,) = figures(served(100, bad=20), None, {"llm": False}).models
    assert (model.name, model.ready) == ("llm", False)
    assert (model.requests_per_s, model.errors_per_s) == (10, 2), "cancellations are no errors"
    assert model.queue_s == 2000 / 1e6
    assert model.batch_size is None


def test_what_the_server_does_not_have_is_left_out() -> None:
    shown = figures(served(), None, {})
    assert (shown.speech, shown.cache, shown.vision, shown.embedding, shown.assistant, shown.gateway) == (
        None,
    ) * 6
    assert figures(None, None, {}).models == ()


def test_the_gateway_s_figures() -> None:
    change = Change(gateway(0.0), gateway(10.0, n=50, bad=10))
    shown = figures(None, change, {}).gateway
    assert shown is not None
    assert (shown.requests_per_s, shown.errors_per_s) == (16, 1)
    assert shown.refused_per_s == 5, "a client that left was not refused"


def test_a_model_is_ready_where_every_server_that_is_not_drained_answers() -> None:
    def ready(**state: int) -> dict[str, bool]:
        page = gateway(0.0, **state)
        return ready_at_gateway(Change(page, page))

    assert ready() == {"llm": True}
    assert ready(ready=0) == {"llm": False}
    assert ready(ready=0, draining=1) == {"llm": True}
    assert ready(canary=0) == {"llm": True, "llm@1": True, "llm@2": False}
    assert ready(ready=0, canary=0) == {"llm": False, "llm@1": False, "llm@2": False}
    (model,) = figures(served(), None, ready(canary=0)).models
    assert (model.ready, model.silent) == (True, ("llm@2",))
    (model,) = figures(served(), None, ready(ready=0, canary=0)).models
    assert (model.ready, model.silent) == (False, ())
