"""`trimodal keys`: API keys of the gateway, in a file that holds their hashes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimodal.cli.common import one_sentence

keys = typer.Typer(help="API keys of the gateway.", no_args_is_help=True)
File = Annotated[Path, typer.Option("--file", envvar="TRIMODAL_KEYS", help="the gateway's --keys")]
FILE = Path("keys.toml")


@keys.command()
def add(
    name: str = typer.Argument(help="who it is for"),
    file: File = FILE,
    tenant: str = typer.Option("", help="whose stored answers it may be given; two tenants share none"),
    tier: str = typer.Option("", help="class of service, of the model's tiers.toml"),
    models: list[str] = typer.Option([], "--model", help="a model that it may use; repeatable; default: all"),
    model_aliases: list[str] = typer.Option([], "--model-alias", help="another name, as gpt-4o-mini=llm"),
    requests_per_minute: int = typer.Option(0, min=0, help="0: no limit"),
    tokens_per_minute: int = typer.Option(0, min=0, help="0: no limit"),
    audio_seconds_per_minute: int = typer.Option(0, min=0, help="of recordings and live; 0: no limit"),
    images_per_minute: int = typer.Option(0, min=0, help="pictures that requests bring; 0: no limit"),
    max_streams: int = typer.Option(0, min=0, help="requests at once; 0: no limit"),
    operator: bool = typer.Option(False, "--operator", help="may read /metrics, where all tenants are named"),
) -> None:
    """Makes a key and prints it, once; the file keeps its hash. A running gateway takes it at once."""
    given = {name: value for name, value in locals().items() if name != "file"}
    with one_sentence("trimodal keys"):
        from pydantic import ValidationError

        from trimodal.errors import SettingsError
        from trimodal.gateway.keys import Key, add_key
        from trimodal.settings import describe

        try:
            key = Key.model_validate(given)
        except ValidationError as error:
            raise SettingsError(describe(error, Key)) from None
        typer.echo(add_key(file, key))


@keys.command("list")
def list_(file: File = FILE) -> None:
    """Lists the keys' names and limits."""
    with one_sentence("trimodal keys"):
        from rich.console import Console
        from rich.table import Table

        from trimodal.gateway.keys import read_keys

        table = Table("name", "tenant", "tier", "models", "limits", box=None)
        for key in read_keys(file):
            minute = ("requests", "tokens", "audio_seconds", "images")
            limits = [(getattr(key, f"{one}_per_minute"), f"{one.replace('_', ' ')}/min") for one in minute]
            told = [f"{most} {unit}" for most, unit in (*limits, (key.max_streams, "streams")) if most]
            models = ", ".join(key.models) or "all"
            name = f"{key.name} (operator)" if key.operator else key.name
            table.add_row(name, key.tenant, key.tier or "default", models, ", ".join(told) or "–")
        Console(highlight=False, markup=False).print(table)


@keys.command()
def revoke(name: str = typer.Argument(help="whose key"), file: File = FILE) -> None:
    """Removes a key: the gateway refuses it within a second, and ends its streams."""
    with one_sentence("trimodal keys"):
        from trimodal.gateway.keys import revoke_key

        revoke_key(file, name)
        typer.echo(f"'{name}' is revoked")
