"""Finds the PromQL of rules and dashboards, and the metrics that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
_TEXT = re.compile(r'"[^"]*"')
_NAME = re.compile(r"(?<![\w:])(?:nv|trimodal)[_:][\w:]+")


def rules() -> Iterator[dict[str, Any]]:
    """All recording and alerting rules."""
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from group["rules"]


def panels() -> Iterator[dict[str, Any]]:
    """All panels of all dashboards."""
    for file in DASHBOARDS:
        yield from json.loads(file.read_text())["panels"]


def expressions() -> list[str]:
    """All PromQL."""
    found = [rule["expr"] for rule in rules()]
    return found + [target["expr"] for panel in panels() for target in panel["targets"]]


def metrics(expression: str) -> set[str]:
    """The names of metrics in one expression, recorded ones (with colons) among them."""
    return set(_NAME.findall(_TEXT.sub('""', expression)))


def scraped() -> set[str]:
    """Every metric that a rule or a panel wants of a server or a gateway."""
    return {name for each in expressions() for name in metrics(each) if ":" not in name}
