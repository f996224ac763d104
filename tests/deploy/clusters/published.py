"""Fetches published schemas, by pinned version and hash, and checks objects against them.

Kubernetes, KEDA and Gateway API: npm's kubernetes-models, made of the projects' own Go types. KServe: its
SDK on PyPI, whose models say names and types of every field; the wheel is read, not installed, because it
wants numpy, pandas and a server of its own.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parent / "tools"
KSERVE = "kserve==0.21.0"
KSERVE_HASH = "sha256:df9bc5888704d9085015e08f1a8fced5ff0698f3becc6212d4e7b8234c71623b"
_CORE = re.compile(r"(?:V1(?!alpha|beta)|K8sIo|ResourceQuantity)")  # Kubernetes' own types: checked as a Pod
_PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object}


class NotHereError(Exception):
    """A tool or the registry is missing, and why."""


def kubernetes_problems(given: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """What is wrong with objects of Kubernetes, KEDA and Gateway API.

    Args:
        given: where each stands, and the object.
    """
    text = json.dumps([{"where": where, "object": object} for where, object in given])
    done = subprocess.run(
        ["node", "check.mjs"], cwd=_packages(), input=text, capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [f"{each['where']}: {each['problem']}" for each in json.loads(done.stdout)]


def kserve_problems(object: dict[str, Any]) -> list[str]:
    """What is wrong with an object of KServe, but for what is Kubernetes' own in it."""
    version = str(object["apiVersion"]).split("/")[1].capitalize()
    return list(_walk(object, f"{version}{object['kind']}", ""))


def _walk(value: Any, kind: str, path: str) -> Any:
    if found := re.fullmatch(r"list\[(.+)\]", kind):
        if not isinstance(value, list):
            yield f"{path}: no list"
            return
        for index, each in enumerate(value):
            yield from _walk(each, found[1], f"{path}[{index}]")
    elif found := re.fullmatch(r"dict\(str, (.+)\)", kind):
        if not isinstance(value, dict):
            yield f"{path}: no mapping"
            return
        for key, each in value.items():
            yield from _walk(each, found[1], f"{path}.{key}")
    elif kind in _PLAIN:
        if not isinstance(value, _PLAIN[kind]) or (isinstance(value, bool) and kind in ("int", "float")):
            yield f"{path}: {value!r} is no {kind}"
    elif kind in _kserve_models():
        names, types, required = _kserve_models()[kind]
        if not isinstance(value, dict):
            yield f"{path}: no mapping"
            return
        for name in sorted(required - value.keys()):
            yield f"{path}.{name}: missing"
        for name, each in value.items():
            if name not in names:
                yield f"{path}.{name}: {kind} has no such field"
            else:
                yield from _walk(each, types[names[name]], f"{path}.{name}")
    elif not (_CORE.match(kind) or kind == "V1beta1MetricQuantity"):
        yield f"{path}: the SDK does not say what {kind} is"


@cache
def _kserve_models() -> dict[str, tuple[dict[str, str], dict[str, str], set[str]]]:
    """Model → names in YAML → attributes; attributes → types; required names in YAML."""
    models = {}
    with zipfile.ZipFile(_kserve_wheel()) as wheel:
        for file in wheel.namelist():
            if re.fullmatch(r"kserve/models/v1\w+\.py", file):
                source = wheel.read(file).decode()
                for node in ast.parse(source).body:
                    if isinstance(node, ast.ClassDef):
                        models[node.name] = _model(node, source)
    if len(models) < 100:
        raise RuntimeError(f"{KSERVE} has {len(models)} models: is it laid out in another way?")
    return models


def _model(node: ast.ClassDef, source: str) -> tuple[dict[str, str], dict[str, str], set[str]]:
    tables = {
        each.targets[0].id: ast.literal_eval(each.value)
        for each in node.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
    }
    attributes, types = tables["attribute_map"], tables["openapi_types"]
    refused = set(re.findall(r'raise ValueError\("Invalid value for `(\w+)`, must not be `None`"\)', source))
    return (
        {name: attribute for attribute, name in attributes.items()},
        types,
        {attributes[attribute] for attribute in refused},
    )


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TRIMODAL_CACHE") or Path(home) / "trimodal") / "cluster-schemas"


def _packages() -> Path:
    """The folder with npm's packages, as the lock file pins them."""
    if not shutil.which("npm"):
        raise NotHereError("no npm on PATH")
    folder = _cache() / "npm"
    lock = TOOLS / "package-lock.json"
    fresh = folder / "package-lock.json"
    if not (fresh.is_file() and fresh.read_text() == lock.read_text() and (folder / "done").is_file()):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(TOOLS / name, folder)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
        (folder / "done").touch()
    shutil.copy(TOOLS / "check.mjs", folder)
    return folder


def _kserve_wheel() -> Path:
    folder = _cache() / KSERVE
    if not (found := list(folder.glob("*.whl"))):
        folder.mkdir(parents=True, exist_ok=True)
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{KSERVE} --hash={KSERVE_HASH}\n")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"]
        _run([*command, "--only-binary=:all:", "-r", str(wanted), "-d", str(folder)], folder)
        found = list(folder.glob("*.whl"))
    return found[0]


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150)
    if done.returncode:
        raise NotHereError(f"{command[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
