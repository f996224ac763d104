"""`trimodal cache …`: looks into a store of answers and clears it, beside the server that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import typer

from trimodal.cli.common import one_sentence

if TYPE_CHECKING:
    from trimodal.cache.stores.base import Store

cache = typer.Typer(help="Stored answers: what there is, and clear it.", no_args_is_help=True)
_TIMEOUT_S = 30.0
STORE = typer.Option("", "--store", help="File or URL, as the parameter cache_store; empty: the model's own.")
MODEL = typer.Option("llm", help="Whose store it is when none is named.")


@cache.command()
def stats(store: str = STORE, model: str = MODEL) -> None:
    """How many answers are stored."""
    from trimodal.cache.stores.base import default_store

    path = default_store(model)
    if not store and not path.exists():  # opening it would make the file
        typer.echo(f"nothing stored yet: {path}")
    else:
        with _opened(store or str(path)) as (name, opened):
            held = opened.stats()
        typer.echo(f"{name}: {held.entries} answers of {held.tenants} tenants")


@cache.command()
def clear(
    store: str = STORE,
    model: str = MODEL,
    tenant: str = typer.Option(None, help='Of this tenant alone; "" is the one of those who name none.'),
    namespace: str = typer.Option(None, help="Of this namespace alone."),
    all_: bool = typer.Option(False, "--all", help="Those of every tenant."),
) -> None:
    """Drop stored answers; a server that runs on them finds none from then on."""
    from trimodal.cache.stores.base import Owner, default_store

    if all_ == (tenant is not None or namespace is not None):
        raise typer.BadParameter("say what to clear: --tenant, --namespace or both, or --all")
    with _opened(store or str(default_store(model))) as (name, opened):
        count = opened.clear(Owner(tenant=tenant, namespace=namespace))
    typer.echo(f"{name}: {count} answers cleared")


@contextmanager
def _opened(url: str) -> Iterator[tuple[str, Store]]:
    """The store and how to name it; a failure is one sentence and exit code 1."""
    import re
    from pathlib import Path

    from trimodal.cache.stores.base import Limits, StoreError, is_file, open_store
    from trimodal.cache.stores.sqlite_file import may_be_ours
    from trimodal.errors import OperatorError
    from trimodal.paths import expanded

    name = url if is_file(url) else re.sub("//.*@", "//…@", url)  # without its password
    with one_sentence():
        # Opening would make a missing file, and set one aside that is damaged or old.
        if is_file(url) and not may_be_ours(expanded(Path(url), "--store")):
            raise OperatorError(f"{url} is no store of answers: name the server's cache_store with --store")
        try:
            with closing(open_store(url, Limits(timeout_s=_TIMEOUT_S))) as opened:
                yield name, opened
        except StoreError as error:
            raise OperatorError(f"{name}: {error}") from None
