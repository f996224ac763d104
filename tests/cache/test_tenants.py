"""Hostile questions through the whole cache on the embedded store: each is answered from its own scope.

The judge accepts all, and the embedder finds every text like every other: what keeps scopes apart is
the keys and the store alone.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cache.doubles import LONG, Alike, Rig, ask
from trimodal.cache.stores.base import Limits, open_store
from trimodal.cache.values import Entry

TENANTS = 300
# Texts that look alike, or like a key, a path, a pattern or a query of some store.
HOSTILE = (
    "", " ", "a", "а", "A", "Ａ", "é", "e\u0301", "\u202ea", "a\u200b", "a\0", "a\0b", "*", "%", "_", "?",
    "[a]", "a*", "a' OR '1'='1", '"; DROP TABLE answers; --', "a:b", "a/b", "../a", "{a}", "trimodal:",
    "None", "null", '{"tenant": "a"}', '["a", "default"]', "a\n", "a\r\n", "0", "00", "\ufeffa", "😀",
    "\ud83d", "a" * 256,
)  # fmt: skip


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "answers.sqlite"
    rig = Rig(store=open_store(str(path), Limits(max_entries=100_000, timeout_s=LONG)), embedder=Alike())
    yield rig
    rig.cache.close()


def test_of_hundreds_of_tenants_none_gets_an_answer_of_another(opened):
    now = time.time()
    questions = {f"tenant-{index}": ask("who am I", tenant=f"tenant-{index}") for index in range(TENANTS)}
    for tenant, question in questions.items():
        if int(tenant.rpartition("-")[2]) % 2 == 0:  # the others have asked nothing yet
            entry = Entry("who am I", tenant, "stop", 1, 64, now, now + 900)
            opened.store.put(question.scope, question.key, entry, opened.embedder.embed(""))
    for tenant, question in questions.items():
        wanted = tenant if int(tenant.rpartition("-")[2]) % 2 == 0 else None
        for hit in (opened.cache.lookup(question).exact(), opened.cache.lookup(question).semantic()):
            assert (hit and hit.entry.answer) == wanted
        near = opened.cache.lookup(ask("and who are you", tenant=tenant)).semantic()
        assert (near and near.entry.answer) == wanted


PLACES = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from(HOSTILE),
        "namespace": st.sampled_from(("default", "live", *HOSTILE[:12])),
        "system": st.sampled_from(HOSTILE),
        "stops": st.lists(st.sampled_from(HOSTILE), max_size=2).map(tuple),
    }
)


def told(scope):
    return repr(sorted(scope.items()))


def asked(scope, text):
    messages = [{"role": "system", "content": scope["system"]}, {"role": "user", "content": text}]
    tenant, namespace, stops = scope["tenant"], scope["namespace"], scope["stops"]
    return ask(prompt=None, messages=messages, tenant=tenant, namespace=namespace, stops=stops)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(PLACES, st.sampled_from(HOSTILE)), min_size=2, max_size=6))
def test_whatever_is_kept_every_answer_comes_from_the_very_place_that_asks(opened, asking):
    for scope, text in asking:
        opened.keep(asked(scope, text), told(scope))
    for scope, _ in asking:
        for _, text in asking:
            for hit in (
                opened.cache.lookup(asked(scope, text)).exact(),
                opened.cache.lookup(asked(scope, text)).semantic(),
            ):
                assert hit is None or hit.entry.answer == told(scope)


def test_what_was_kept_is_found_whatever_its_place_is_called(opened):
    """The test above would pass on a cache that finds nothing."""
    for name in HOSTILE:
        scope = {"tenant": name, "namespace": name, "system": name, "stops": (name,)}
        opened.keep(asked(scope, "who am I"), told(scope))
        hits = (
            opened.cache.lookup(asked(scope, "who am I")).exact(),
            opened.cache.lookup(asked(scope, "and you")).semantic(),
        )
        assert [hit and hit.entry.answer for hit in hits] == [told(scope)] * 2, name
