"""`trimodal cache` as it is called, on a store that lies in a file: counts, filters, sentences."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests.cache.doubles import ask
from tests.top.test_audits import page
from trimodal.cache.audit.disagreements import digest
from trimodal.cache.stores.base import Limits, default_store, open_store
from trimodal.cache.values import Entry
from trimodal.cli.app import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["cache", *arguments])


@pytest.fixture(autouse=True)
def _no_server(monkeypatch):
    """One that runs on this machine is none of these tests' business."""
    monkeypatch.setenv("TRIMODAL_METRICS_URL", "127.0.0.1:9")


@pytest.fixture
def store(monkeypatch, tmp_path):
    """The default store of the llm model, with three answers of two tenants, held open as a server would."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path))
    opened = open_store(str(default_store("llm")), Limits(timeout_s=30))
    now = time.time()
    for tenant, namespace in (("", "default"), ("a", "default"), ("a", "faq")):
        question = ask(tenant=tenant, namespace=namespace)
        entry = Entry(question.text, "yes", "stop", 1, 64, now, now + 900)
        opened.put(question.scope, question.key, entry, np.array([1, 0], np.float32))
    yield opened
    opened.close()


def left(store) -> set[tuple[str, str]]:
    scopes = [(tenant, namespace) for tenant in ("", "a") for namespace in ("default", "faq")]
    questions = {scope: ask(tenant=scope[0], namespace=scope[1]) for scope in scopes}
    return {scope for scope, question in questions.items() if store.get(question.scope, question.key)}


def test_stats_are_one_line(store):
    result = run("stats")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{default_store('llm')}: 3 answers of 2 tenants, ")


def test_a_fresh_machine_has_nothing_stored_yet(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path))
    path = default_store("llm")
    result = run("stats")
    assert (result.exit_code, result.stdout) == (0, f"nothing stored yet: {path}\n")
    told = json.loads(run("stats", "--json").stdout)
    assert told == {"store": str(path), "entries": 0, "bytes": 0, "tenants": 0, "audit": []}
    assert not path.exists()


def test_stats_in_json(store):
    held = json.loads(run("stats", "--json", "--store", str(default_store("llm"))).stdout)
    assert (held["entries"], held["tenants"], held["bytes"] > 0) == (3, 2, True)


@pytest.mark.parametrize(
    ("filters", "gone", "stay"),
    [
        (("--all",), 3, set()),
        (("--tenant", "a"), 2, {("", "default")}),
        (("--tenant", ""), 1, {("a", "default"), ("a", "faq")}),
        (("--namespace", "default"), 2, {("a", "faq")}),
        (("--tenant", "a", "--namespace", "faq"), 1, {("", "default"), ("a", "default")}),
        (("--tenant", "nobody"), 0, {("", "default"), ("a", "default"), ("a", "faq")}),
    ],
)
def test_clear_drops_what_matches_and_who_has_the_store_open_sees_it(store, filters, gone, stay):
    result = run("clear", *filters)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f": {gone} answers cleared\n")
    assert left(store) == stay


@pytest.mark.parametrize("filters", [(), ("--all", "--tenant", "a"), ("--all", "--namespace", "faq")])
def test_clear_wants_to_be_told_what(store, filters):
    result = run("clear", *filters)
    assert result.exit_code == 2
    assert "say what to clear" in result.output
    assert len(left(store)) == 3


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    path = tmp_path / "typo.sqlite"
    result = run("stats", "--store", str(path))
    assert result.exit_code == 1
    assert "no such store" in result.output
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"root:x:0:0:root\n", b"SQLite format 2", bytes(100_000)])
def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "something"
    path.write_bytes(content)
    for arguments in (("stats",), ("clear", "--all")):
        result = run(*arguments, "--store", str(path))
        assert result.exit_code == 1
        assert "is no store of answers" in result.output
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]


def test_another_programs_damaged_database_is_left_as_it_is(tmp_path):
    path = tmp_path / "places.sqlite"
    content = b"SQLite format 3\0" + bytes(range(200)) * 50
    path.write_bytes(content)
    result = run("stats", "--store", str(path))
    assert (result.exit_code, "is no store of answers" in result.output) == (1, True)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]


def test_a_store_whose_header_is_still_in_its_log_is_found(tmp_path):
    path = tmp_path / "fresh.sqlite"
    store = open_store(str(path), Limits())
    try:
        result = run("stats", "--store", str(path))
    finally:
        store.close()
    assert (result.exit_code, "0 answers" in result.output) == (0, True)


def test_a_servers_own_memory_cannot_be_looked_into():
    for arguments in (("stats",), ("clear", "--all")):
        result = run(*arguments, "--store", "memory:")
        assert (result.exit_code, "in its server's own memory" in result.output) == (1, True)


def test_a_directory_is_no_store(tmp_path):
    result = run("stats", "--store", str(tmp_path))
    assert (result.exit_code, "no such store" in result.output) == (1, True)


@pytest.mark.parametrize("user", ["", "somebody"])
def test_a_shared_store_that_is_down_is_one_sentence_without_its_password(user):
    result = run("stats", "--store", f"redis://{user}:hunter2@127.0.0.1:1/0")
    assert result.exit_code == 1
    assert result.output.startswith("trimodal: redis://…@127.0.0.1:1/0: ")
    assert "hunter2" not in result.output


def test_an_unknown_kind_of_store_is_one_sentence():
    result = run("stats", "--store", "mysql://me:hunter2@host/db")
    assert result.exit_code == 1
    assert result.output.startswith("trimodal: cache_store 'mysql:…': a file's path or a URL of memory, ")
    assert "hunter2" not in result.output


class TestAudit:
    @pytest.fixture(autouse=True)
    def _served(self, monkeypatch):
        found = page()
        monkeypatch.setattr("trimodal.top.page.fetch", lambda url, timeout: found)

    def test_stats_show_it_by_tenant_and_namespace(self, store):
        lines = run("stats").stdout.splitlines()
        assert len(lines) == 3
        assert [line.split(":")[0] for line in lines[1:]] == sorted(
            f"tenant {name}, default" for name in ("none", digest("acme"))
        )

    def test_a_tenant_is_found_by_its_name(self, store):
        for tenant, named in (("acme", digest("acme")), ("", "none")):
            (line,) = run("stats", "--tenant", tenant).stdout.splitlines()[1:]
            assert line.startswith(f"tenant {named}, default: ")

    def test_json_has_it_too(self, store):
        told = json.loads(run("stats", "--json", "--tenant", "acme").stdout)["audit"]
        assert [(one["tenant"], one["hits"]) for one in told] == [(digest("acme"), {"agreed": 700})]

    def test_an_address_that_is_none_is_said(self, store):
        result = run("stats", "--metrics", "http://:0")
        assert result.exit_code == 1
        assert "no address" in result.output
