"""Holds README.md and docs/ against the code: commands, links, snippets, parameters, metrics."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.project.pages import (
    PAGES,
    ROOT,
    anchors,
    blocks,
    invocations,
    prose,
    quoted,
    section,
    shell_lines,
    tables,
)
from tests.project.test_configs import REPOSITORY, SETTINGS, config
from tests.project.test_layers import LAYERS
from trimodal.cli.app import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = ROOT / "docs"
COMMANDS: Any = typer.main.get_command(app)
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


# Commands


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """All commands of a page: those of its shell blocks, and those quoted in its prose."""
    return [*invocations(shell_lines(page)), *invocations(quoted(page))]


@by_page
def test_every_trimodal_command_parses(page: Path) -> None:
    problems = []
    for lines, whole in ((shell_lines(page), True), (quoted(page), False)):
        for program, args in invocations(lines):
            if program == "trimodal" and args and (problem := refusal(args, whole=whole)):
                problems.append(f"trimodal {' '.join(args)}: {problem}")
    assert not problems


def refusal(args: list[str], *, whole: bool) -> str:
    """Why the CLI would not take the arguments; empty when it would. Files need not exist.

    Args:
        whole: a command to type; otherwise a mention in prose, which may leave arguments out.
    """
    command, context = COMMANDS, COMMANDS.context_class(COMMANDS, info_name="trimodal")
    while hasattr(command, "get_command"):
        if not args:
            return ""  # the group itself is named
        if args[0].startswith("-") and command.invoke_without_command:
            break
        name, *args = args
        found = command.get_command(context, name)
        if not found:
            return f"no command '{name}'" if whole or name.isalpha() else ""
        command, context = found, command.context_class(found, info_name=name, parent=context)
    if args in ([], ["--help"]) and not whole:
        return ""
    try:
        command.make_context(context.info_name, list(args), parent=context.parent)
    except Exception as error:
        message = getattr(error, "message", "") or type(error).__name__
        left_out = "requires an argument" in message or type(error).__name__ == "MissingParameter"
        if not ("does not exist" in message or (left_out and not whole) or type(error).__name__ == "Exit"):
            return message
    return ""


@by_page
def test_every_script_exists_and_has_the_options_shown(page: Path) -> None:
    problems = []
    for program, args in commands(page):
        if program == "trimodal" or "…" in program:
            continue
        source = source_of(program)
        if not source.is_file():
            if not source.is_dir():
                problems.append(f"{program}: there is no such file")
            continue
        for arg in args:
            option = arg.split("=")[0]
            if re.fullmatch(r"--[a-z][\w-]*", option) and option not in options_of(source):
                problems.append(f"{program} has no option {option}")
    assert not problems


def source_of(program: str) -> Path:
    """A script's path, or a module's: that of its `__main__` for a package."""
    if "/" in program:
        return ROOT / program
    path = ROOT / program.replace(".", "/")
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def options_of(source: Path) -> set[str]:
    """All that the script may take as an option: texts with two dashes, and parameters of typer commands."""
    text = source.read_text()
    if "scripts" in source.relative_to(ROOT).parts:  # they hand their arguments on
        options = set(re.findall(r"--[a-z][\w-]*", text))
        for module in re.findall(r"-m ([\w.]+)", text):
            if module.startswith(("trimodal", "benchmarks")):
                options |= options_of(source_of(module))
        return options
    tree = ast.parse(text)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"--[a-z][\w-]*", node.value))
        elif isinstance(node, ast.FunctionDef) and "typer" in text:
            found |= {f"--{arg.arg.replace('_', '-').strip('-')}" for arg in node.args.args}
    return found


@by_page
def test_every_parameter_set_exists(page: Path) -> None:
    """As `--set llm.cache=semantic`, `vision.engine=fake`, and in prose `numerics=reproducible`."""
    known = {name for settings in SETTINGS.values() for name in settings.model_fields} | {"lang"}
    for line in [*shell_lines(page), *quoted(page)]:
        for model, name in re.findall(r"(?:--set |^)([a-z_]+)\.([a-z_]+)=", line):
            assert name in SETTINGS[model].model_fields, line
    for text in quoted(page):
        if found := re.fullmatch(r"([a-z_]+)=[\w.,]+", text):
            assert found[1] in known, f"no model has the parameter of `{text}`"


# Snippets


@by_page
def test_every_snippet_compiles(page: Path) -> None:
    for code in blocks(page, "python"):
        compile(code, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for text in blocks(page, "json"):
        for line in text.splitlines() if text.startswith('{"id"') else [text]:
            json.loads(line)
    for text in blocks(page, "toml"):
        tomllib.loads(text)


@by_page
def test_every_snippet_imports_and_calls_what_exists(page: Path) -> None:
    from trimodal.client import Client

    for code in blocks(page, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trimodal"):
                module = importlib.import_module(node.module or "")
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert not missing, f"{node.module} has no {missing}"
        missing = [name for name in re.findall(r"\bclient\.(\w+)\(", code) if not hasattr(Client, name)]
        assert not missing, f"Client has no {missing}"


def test_the_cases_shown_of_a_golden_set_are_valid() -> None:
    from trimodal.regress import schema

    adapter = next(value for value in vars(schema).values() if type(value).__name__ == "TypeAdapter")
    for text in blocks(DOCS / "regress.md", "json"):
        for line in text.splitlines():
            adapter.validate_json(line)


def test_the_tiers_shown_are_valid(tmp_path: Path) -> None:
    from trimodal.llm import tiers

    for text in blocks(DOCS / "scheduling.md", "toml"):
        file = tmp_path / "tiers.toml"
        file.write_text(text)
        assert tomllib.loads(text)["tier"]["premium"]["priority"] == 10
        tiers.read_tiers(file)


# Paths and links


@by_page
def test_every_path_exists(page: Path) -> None:
    problems = []
    for text in quoted(page):
        path = text.split("::")[0].rstrip("/")
        if re.fullmatch(
            r"(?:trimodal|tests|build|clients|scripts|deploy|docs|model_repository|\.ci)/[\w./*-]+", path
        ):
            if not list(ROOT.glob(path)):
                problems.append(text)
        elif re.fullmatch(r"trimodal(?:\.\w+)+", path):
            module = path.replace(".", "/")
            parent = module.rsplit("/", 1)[0]
            if not any((ROOT / f"{one}{end}").exists() for one in (module, parent) for end in ("", ".py")):
                problems.append(text)
    assert not problems


@by_page
def test_every_link_resolves(page: Path) -> None:
    problems = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists():
            problems.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(linked):
            problems.append(f"{target}: no such heading")
    assert not problems


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} <= linked


# Parameters


@pytest.mark.parametrize("model", sorted(SETTINGS))
def test_the_parameters_of_a_model_are_all_described(model: str) -> None:
    shown = {
        row[0].strip("`"): "" if row[1] == "empty" else row[1].strip("`").strip()
        for row in tables(section(DOCS / "parameters.md", model))
        if row[0] != "parameter"
    }
    assert shown == shipped(model)


def shipped(model: str) -> dict[str, str]:
    """Parameter → value in the cpu profile's file, or the default."""
    file = REPOSITORY / model / "configs" / "cpu.pbtxt"
    parameters = config(file if file.exists() else REPOSITORY / model / "config.pbtxt").parameters
    values = {}
    for name, field in SETTINGS[model].model_fields.items():
        if name in ("version_directory", "operator_hash"):  # set by the glue
            continue
        default = field.default
        if isinstance(default, tuple):
            default = ",".join(map(str, default))
        text = str(default).lower() if isinstance(default, bool) else str(default)
        if isinstance(default, float):
            text = f"{default:g}"
        values[name] = parameters[name].string_value.strip() if name in parameters else text.strip()
    return values


# Metrics


def test_every_metric_family_is_described_and_every_one_described_exists() -> None:
    rows = tables((DOCS / "metrics.md").read_text())
    described = {row[0].strip("`"): row[1] for row in rows if row[0].startswith("`trimodal_")}
    assert described == families()


@cache
def families() -> dict[str, str]:
    """Name → kind of each family that the package declares in calls of counter(s), gauge and histogram."""
    return dict(declared())


MAKERS = {("trimodal", "metrics.py"), ("triton", "metrics.py"), ("runtimes", "shared_runs.py")}


def declared() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "trimodal").rglob("*.py")):
        if (file.parent.name, file.name) in MAKERS:
            continue  # what makes them, whatever they are called
        tree = ast.parse(file.read_text())
        texts = {
            node.targets[0].id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        for call in calls:
            if getattr(call.func, "id", "") == "SharedRuns":
                prefix, items = (name_of(call.args[at], texts) for at in (1, 3))
                yield from ((f"{prefix}_{end}", "histogram") for end in ("seconds", "batch_size"))
                yield f"{prefix}_{items.lower()}_total", "counter"
        found = [(kind, name_of(call.args[0], texts)) for call in calls if (kind := kind_of(call))]
        # A helper of the file's own puts the beginning in front: f"trimodal_speech_{name}".
        prefix = next((name[: -len("{}")] for _, name in found if name.endswith("{}")), "")
        for kind, name in found:
            if name and not name.endswith("{}"):
                yield name if name.startswith("trimodal_") else prefix + name, kind


def kind_of(call: ast.Call) -> str:
    """counter, gauge or histogram; empty for any other call."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    kind = called.strip("_").removesuffix("s")
    return kind if kind in ("counter", "gauge", "histogram") else ""


def name_of(node: ast.expr, texts: dict[str, str]) -> str:
    """The name in a call's first argument, "{}" for what is not known here; empty if it is no text."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = []
    for value in node.values:
        if isinstance(value, ast.Constant):
            parts.append(str(value.value))
        elif isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.Name):
            parts.append(texts.get(value.value.id, "{}"))
    return "".join(parts)


@by_page
def test_every_metric_named_is_one(page: Path) -> None:
    known = families()
    for name in re.findall(
        r"\btrimodal_(?:llm|cache|vision|speech|embedding|assistant)_\w+", page.read_text()
    ):
        base = re.sub(r"_(?:bucket|sum|count)$", "", name)
        assert name in known or base in known, name


# Figures and dependencies


def test_the_figures_of_the_readme_stand_in_the_benchmarks() -> None:
    figures = 0
    for line in (ROOT / "README.md").read_text().splitlines():
        if pages := re.findall(r"docs/(benchmarks\w*\.md)#", line):
            measured = "".join((DOCS / page).read_text() for page in pages)
            for number in re.findall(r"\*\*([\d.,]+)", line):
                figures += 1
                assert number in measured, f"{number} stands in no table of {pages}"
    assert figures >= 3


def test_every_dependency_is_described_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {*project["dependencies"]}.union(*project["optional-dependencies"].values())
    needed |= set(re.findall(r"[\w-]+==[\w.+]+", (ROOT / "scripts/setup").read_text()))
    names = {re.split(r"[\[<>=; ]", requirement)[0].lower() for requirement in needed} - {"trimodal"}
    page = (DOCS / "dependencies.md").read_text().lower()
    # What no extra brings stands in a section of its own, or says so behind its name.
    extras = page.replace(section(DOCS / "dependencies.md", "Beside it (installed by no extra)").lower(), "")
    cells = [row[0] for row in tables(extras) if row[0] not in ("package", "program")]
    described = {
        name.strip()
        for cell in cells
        if "(in no" not in cell
        for name in re.sub(r"\(.*", "", cell).split(",")
    }
    assert names - described == set()
    assert described - names <= {"httpx"}, "comes with faster-whisper"


# Architecture


def test_the_layers_shown_are_those_that_are_kept() -> None:
    shown = blocks(DOCS / "architecture.md", "text")[0].splitlines()
    assert [tuple(line.split()) for line in shown] == list(LAYERS)


def test_the_packages_are_described_as_their_docstrings_do() -> None:
    rows = tables(section(DOCS / "architecture.md", "Folders"))
    shown = {row[0].strip("`"): row[1] for row in rows if row[0].startswith("`")}
    said = {
        str(file.parent.relative_to(ROOT)): (ast.get_docstring(ast.parse(file.read_text())) or "").split(
            "\n"
        )[0]
        for file in (ROOT / "trimodal").rglob("__init__.py")
        if file.parent != ROOT / "trimodal"
    }
    assert all(said.values()), f"no docstring: {[folder for folder, text in said.items() if not text]}"
    assert shown == {folder: text for folder, text in said.items() if folder.count("/") == 1}
