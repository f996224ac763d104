from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from trimodal.cli.common import with_settings


@dataclass(frozen=True)
class Settings:
    size: Annotated[int, typer.Option("--how-large", min=1, rich_help_panel="Measures")] = 3
    names: Annotated[list[str] | None, typer.Option("--name")] = None


def test_the_fields_of_a_dataclass_are_options_and_come_as_one_value():
    got = []
    app = typer.Typer()

    @app.command()
    @with_settings(Settings)
    def command(settings: Settings, place: str = "here") -> None:
        """Does it."""
        got.append((place, settings))

    run = CliRunner().invoke
    assert (
        run(app, []).exit_code == run(app, ["--how-large", "4", "--name", "a", "--place", "x"]).exit_code == 0
    )
    assert got == [("here", Settings()), ("x", Settings(4, ["a"]))]
    assert run(app, ["--how-large", "0"]).exit_code == 2
    shown = run(app, ["--help"], env={"COLUMNS": "100"}).output
    assert "Does it." in shown
    assert "Measures" in shown
