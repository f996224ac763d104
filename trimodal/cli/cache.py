"""`trimodal cache …`: looks into a store of answers and clears it, beside the server that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import typer

from trimodal.cli.common import one_sentence

if TYPE_CHECKING:
    from pathlib import Path

    from trimodal.cache.stores.base import Store
    from trimodal.top.audits import Audited

cache = typer.Typer(help="Stored answers: what there is, and clear it.", no_args_is_help=True)
_TIMEOUT_S = 30.0
_METRICS_TIMEOUT_S = 2.0
STORE = typer.Option("", "--store", help="File or URL, as the parameter cache_store; empty: the model's own.")
MODEL = typer.Option("llm", help="Whose store it is when none is named.")


@cache.callback()
def _group() -> None:
    """Stored answers: what there is, and clear it."""


@cache.command()
def stats(
    store: str = STORE,
    model: str = MODEL,
    tenant: str = typer.Option(None, help='Of the audit this tenant alone; "" is the one without a name.'),
    metrics: str = typer.Option(
        "localhost:8002", envvar="TRIMODAL_METRICS_URL", help="Metrics of the server, for its audit."
    ),
    json_: bool = typer.Option(False, "--json", help="Machine-readable."),
) -> None:
    """How many answers are stored, and how often the semantic layer is wrong as the server's audit has it."""
    import json
    from dataclasses import asdict

    from trimodal.cache.stores.base import default_store
    from trimodal.cache.values import StoreStats
    from trimodal.top.audits import as_json, line

    fresh = not store and not default_store(model).exists()
    if fresh:  # no server has stored anything on this machine: opening it would make the file
        name, held = str(default_store(model)), StoreStats(entries=0, bytes=0, tenants=0)
    else:
        with _opened(store, model) as (name, opened):
            held = opened.stats()
    groups = _audited(metrics, model, tenant)
    if json_:
        typer.echo(json.dumps({"store": name, **asdict(held), "audit": [as_json(one) for one in groups]}))
        return
    if fresh:
        typer.echo(f"nothing stored yet: {name}")
    else:
        typer.echo(f"{name}: {held.entries} answers of {held.tenants} tenants, {held.bytes / 1024:.0f} KiB")
    for one in groups:
        typer.echo(line(one))


@cache.command()
def clear(
    store: str = STORE,
    model: str = MODEL,
    tenant: str = typer.Option(None, help='Of this tenant alone; "" is the one of those who name none.'),
    namespace: str = typer.Option(None, help="Of this namespace alone."),
    all_: bool = typer.Option(False, "--all", help="Those of every tenant."),
) -> None:
    """Drop stored answers; a server that runs on them finds none from then on."""
    from trimodal.cache.stores.base import Owner

    if all_ == (tenant is not None or namespace is not None):
        raise typer.BadParameter("say what to clear: --tenant, --namespace or both, or --all")
    with _opened(store, model) as (name, opened):
        count = opened.clear(Owner(tenant=tenant, namespace=namespace))
    typer.echo(f"{name}: {count} answers cleared")


def _audited(metrics: str, model: str, tenant: str | None) -> list[Audited]:
    """What a running server's audit has found; none where no server runs: its estimates go with it."""
    from trimodal.cache.audit.disagreements import digest
    from trimodal.errors import ServerError
    from trimodal.top.audits import audited
    from trimodal.top.page import fetch
    from trimodal.top.watch import metrics_url

    with one_sentence():
        url = metrics_url(metrics)
    try:
        page = fetch(url, timeout=_METRICS_TIMEOUT_S)
    except ServerError:
        return []
    return [one for one in audited(page, model) if tenant is None or one.tenant == digest(tenant)]


@contextmanager
def _opened(url: str, model: str) -> Iterator[tuple[str, Store]]:
    """The store and how to name it; a failure is one sentence and exit code 1."""
    from pathlib import Path

    from trimodal.cache.stores.base import Limits, StoreError, default_store, is_file, open_store
    from trimodal.errors import OperatorError

    url = url or str(default_store(model))
    name = _without_password(url)
    with one_sentence():
        if url.startswith("memory:"):
            raise OperatorError(f"{url} is in its server's own memory: only its end clears it")
        if is_file(url):
            _check_file(Path(url).expanduser())
        try:
            with closing(open_store(url, Limits(timeout_s=_TIMEOUT_S))) as opened:
                yield name, opened
        except StoreError as error:
            raise OperatorError(f"{name}: {error}") from None


def _check_file(path: Path) -> None:
    """Refuses what is no store: opening would make a missing file and set an unreadable one aside."""
    from trimodal.cache.stores.sqlite_file import may_be_ours
    from trimodal.errors import OperatorError

    remedy = "name the server's cache_store with --store"
    try:
        ours = may_be_ours(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OperatorError(f"{path}: no such store ({reason}): {remedy}") from None
    if not ours:
        raise OperatorError(f"{path} is no store of answers: {remedy}")


def _without_password(url: str) -> str:
    from trimodal.cache.stores.base import is_file

    before, at, host = url.rpartition("@")
    if is_file(url) or not at:
        return url
    return f"{before.partition('://')[0]}://…@{host}"
