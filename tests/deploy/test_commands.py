"""Every command line in deploy/ and docker-compose.yml is one that our own command takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import yaml

from tests.deploy.objects import DEPLOY, PROFILES, ROOT, containers, environment, files, rendered
from tests.project.test_configs import REPOSITORY, SETTINGS, config
from tests.project.test_docs import COMMANDS, options_of, refusal
from trimodal.server.overlay import parse_changes
from trimodal.settings import parse_parameters

FOREIGN = {
    "HF_TOKEN",
    "HOME",
    "TRIMODAL_ENGINES",
    "TRIMODAL_CACHE",
}  # of the hub, of libraries, of all commands
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def variables() -> set[str]:
    """Every variable that an option of `serve` or `gateway` reads."""
    found = set(FOREIGN)
    for name in ("serve", "gateway"):
        for option in COMMANDS.get_command(typer.Context(COMMANDS), name).params:
            given = option.envvar or ()
            found |= {given} if isinstance(given, str) else set(given)
    return found


def ours(where: str) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Profile, arguments and variables of each command of ours in a file, or in a rendered profile."""
    if where == "docker-compose.yml":
        for one in COMPOSE.values():
            if one["image"].startswith("trimodal:") and "entrypoint" not in one and "command" in one:
                arguments = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", part) for part in one["command"]]
                yield one["image"].split(":")[1], arguments, {}
        return
    if where == "systemd/trimodal.service":
        unit = (DEPLOY / where).read_text()
        _, *arguments = shlex.split(re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0])
        (given,) = re.findall(r"^Environment=(.*)$", unit, re.MULTILINE)
        yield "cpu", arguments, dict(part.split("=", 1) for part in given.split())
        return
    for one in containers(rendered(profile=where) if where in PROFILES else files()[where]):
        if one["image"].startswith("trimodal:"):
            profile = one["image"].split(":")[1]
            yield profile, one["args"] if "args" in one else one["command"], environment(one)


PLACES = ("docker-compose.yml", "systemd/trimodal.service", *PROFILES, *files())


@pytest.mark.parametrize("where", PLACES)
def test_commands_variables_and_parameters_are_taken(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values too: the command line's own parser reads them."""
    known = variables()
    for profile, arguments, given in ours(where):
        assert {name for name in given if name.startswith("TRIMODAL_")} <= known
        if arguments[0] == "/bin/sh":  # builds engines if no mark says that it did; or waits for such marks
            arguments = arguments[6:] if arguments[3] == "build" else ["serve"]
        program, *rest = [one for one in arguments if one != "/opt/nvidia/nvidia_entrypoint.sh"]
        if program == "python3":
            options = {part.split("=")[0] for part in rest if part.startswith("--")}
            assert options <= options_of(ROOT / rest[0])
            continue
        whole = rest if program == "trimodal" else [program, *rest]
        with monkeypatch.context() as patch:
            for name, value in given.items():
                if value and name not in FOREIGN:
                    patch.setenv(name, value)
            assert not refusal(list(whole), whole=True), whole
        for model, changed in parse_changes(set_values(whole)).items():
            assert parameters(model, profile, changed)


def set_values(args: list[str]) -> list[str]:
    """What --set is given, as two arguments or as one."""
    pairs = zip(args, [*args[1:], ""], strict=True)
    return [after if arg == "--set" else arg[6:] for arg, after in pairs if re.match(r"--set(=|$)", arg)]


def parameters(model: str, profile: str, changed: dict[str, str]) -> Any:
    """Settings of a model's config with these changed, or why not."""
    own = REPOSITORY / model / "configs" / f"{profile}.pbtxt"
    file = own if own.is_file() else REPOSITORY / model / "config.pbtxt"
    values = {name: value.string_value for name, value in config(file).parameters.items()}
    return parse_parameters(SETTINGS[model], values | changed, source=str(file))


def test_commands_are_found_and_wrong_ones_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above could not fail."""
    found = [where for where in PLACES if where not in PROFILES and list(ours(where))]
    assert {"docker-compose.yml", "systemd/trimodal.service", "kserve/runtime-cuda.yaml"} <= set(found)
    assert set_values(["serve", "--set", "a.b=1", "--set=c.d=2"]) == ["a.b=1", "c.d=2"]
    with pytest.raises(Exception, match="tensor_parallel"):
        parameters("llm", "cuda", {"tensor_parallel": "2"})
    assert refusal(["serve", "--drain-timeouts=3"], whole=True)
    monkeypatch.setenv("TRIMODAL_LOG_FORMAT", "xml")
    assert refusal(["serve"], whole=True)
