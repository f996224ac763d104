"""Keeps the layers of trimodal: who may import whom, no import cycles, and small folders without prefixes.

Every import counts: at the top of a module, inside a function, and under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A package or module imports itself and what stands in a line below its own.
LAYERS = (
    ("cli",),
    ("explain", "tune"),
    ("bench", "check", "demo"),
    ("doctor", "plan"),
    ("assistant", "gateway", "top"),
    ("llm", "server", "regress", "turn"),
    ("cache", "speech", "vision", "embedding", "client"),
    ("judge",),
    ("runtimes", "repository", "build_support"),
    ("starter",),
    ("audio", "triton", "manifest", "settings", "report"),
    ("paths", "trace"),
    ("errors", "files", "host", "logs", "metrics"),
)
LEVEL = {name: height for height, names in enumerate(reversed(LAYERS)) for name in names}
MAX_FILES = 12


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    files = sorted((ROOT / "trimodal").rglob("*.py"))
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }


def imports_of(name: str) -> Iterator[str]:
    """The modules of trimodal that this one imports, as they are written."""
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: a relative import"
            # `from a.b import c` imports the module a.b.c where there is one, else a name of a.b
            found = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [whole if whole in modules() else str(node.module) for whole in found]
        else:
            continue
        yield from (one for one in names if one in modules() and one not in ("trimodal", name))


@cache
def graph() -> dict[str, frozenset[str]]:
    return {name: frozenset(imports_of(name)) for name in modules()}


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle as a path that ends where it starts; empty if there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node not in done:
            for below in sorted(graph.get(node, ())):
                if cycle := visit(below, [*path, node]):
                    return cycle
            done.add(node)
        return []

    for node in sorted(graph):
        if cycle := visit(node, []):
            return cycle
    return []


def test_every_package_stands_in_one_layer() -> None:
    children = {name.split(".")[1] for name in modules() if "." in name}
    assert children == set(LEVEL)


def test_imports_point_down() -> None:
    wrong = []
    for name, imported in graph().items():
        for one in sorted(imported):
            if name == "trimodal":
                wrong.append(f"{name} imports {one}")
                continue
            above, below = name.split(".")[1], one.split(".")[1]
            if above != below and LEVEL[above] <= LEVEL[below]:
                wrong.append(f"{name} imports {one}")
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_over_others() -> None:
    cycle = find_cycle({name: set(imported) for name, imported in graph().items()})
    assert not cycle, " → ".join(cycle)


def test_no_cycle_between_the_parts_of_a_package() -> None:
    """Parts are modules and sub-folders: a sub-folder imports only modules that do not import it back."""
    packages = {name for name, file in modules().items() if file.name == "__init__.py"}
    cycles = []
    for package in sorted(packages):
        parts: dict[str, set[str]] = {}
        depth = package.count(".") + 1
        for name, imported in graph().items():
            if name.startswith(f"{package}."):
                part = name.split(".")[depth]
                inside = {one.split(".")[depth] for one in imported if one.startswith(f"{package}.")}
                parts.setdefault(part, set()).update(inside - {part})
        if cycle := find_cycle(parts):
            cycles.append(f"{package}: {' → '.join(cycle)}")
    assert not cycles, "\n".join(cycles)


def test_no_sub_folder_imports_the_service_of_its_package() -> None:
    wrong = [
        f"{name} imports {one}"
        for name, imported in graph().items()
        for one in sorted(imported)
        if one.endswith(".service")
        and name.startswith(one.removesuffix("service"))
        and name.count(".") > one.count(".")
    ]
    assert not wrong, "\n".join(wrong)


def python_files() -> Iterator[Path]:
    for top in ("trimodal", "build", "benchmarks", "tests"):
        for file in (ROOT / top).rglob("*.py"):
            if file.name != "__init__.py":
                yield file.relative_to(ROOT)


def test_a_folder_holds_a_dozen_files_at_most() -> None:
    counts: dict[str, int] = {}
    for file in python_files():
        counts[str(file.parent)] = counts.get(str(file.parent), 0) + 1
    assert not {folder: count for folder, count in counts.items() if count > MAX_FILES}


def test_no_file_repeats_the_name_of_its_folder() -> None:
    """`llm/llm_settings.py` would; `guard/guard.py`, the main file of its folder, does not."""
    wrong = [
        str(file)
        for file in python_files()
        if file.stem.removeprefix("test_").startswith(f"{file.parent.name}_")
    ]
    assert not wrong, "\n".join(wrong)
