"""`trimodal cache` as it is called, on a store that lies in a file: counts, filters, sentences."""

from __future__ import annotations

import time

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tests.cache.doubles import ask
from trimodal.cache.stores.base import Limits, default_store, open_store
from trimodal.cache.values import Entry
from trimodal.cli.app import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["cache", *arguments])


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
    assert result.stdout == f"{default_store('llm')}: 3 answers of 2 tenants\n"


def test_a_fresh_machine_has_nothing_stored_yet(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path))
    path = default_store("llm")
    result = run("stats")
    assert (result.exit_code, result.stdout) == (0, f"nothing stored yet: {path}\n")
    assert not path.exists()


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


@pytest.mark.parametrize(
    "content",
    [b"", b"root:x:0:0:root\n", b"SQLite format 2", bytes(100_000), b"SQLite format 3\0" + bytes(9_000)],
    ids=["empty", "text", "another format", "zeros", "another program's, damaged"],
)
def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "something.sqlite"
    path.write_bytes(content)
    for arguments in (("stats",), ("clear", "--all")):
        result = run(*arguments, "--store", str(path))
        assert (result.exit_code, "is no store of answers" in result.output) == (1, True)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]


@pytest.mark.parametrize("name", ["typo.sqlite", ""])
def test_what_is_not_there_and_a_directory_are_no_store(tmp_path, name):
    result = run("stats", "--store", str(tmp_path / name))
    assert (result.exit_code, "is no store of answers" in result.output) == (1, True)
    assert not list(tmp_path.iterdir())


def test_a_store_whose_header_is_still_in_its_log_is_found(tmp_path):
    path = tmp_path / "fresh.sqlite"
    store = open_store(str(path), Limits())
    try:
        result = run("stats", "--store", str(path))
    finally:
        store.close()
    assert (result.exit_code, "0 answers" in result.output) == (0, True)


@pytest.mark.parametrize("user", ["", "somebody"])
def test_a_shared_store_that_is_down_is_one_sentence_without_its_password(user):
    result = run("stats", "--store", f"redis://{user}:hunter2@127.0.0.1:1/0")
    assert result.exit_code == 1
    assert result.output.startswith("trimodal: redis://…@127.0.0.1:1/0: ")
    assert "hunter2" not in result.output
