"""Finds the PromQL of rules, dashboards and autoscalers, and the metrics that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.deploy.objects import DEPLOY, picker_flags, queries

RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
_TEXT = re.compile(r'"[^"]*"')
_NAME = re.compile(r"(?<![\w:])(?:nv|process|trimodal)[_:][\w:]+")


def rules() -> Iterator[dict[str, Any]]:
    """All recording and alerting rules."""
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from group["rules"]


def expressions() -> list[str]:
    """All PromQL of rules and dashboards."""
    panels = [panel for file in DASHBOARDS for panel in json.loads(file.read_text())["panels"]]
    found = [rule["expr"] for rule in rules()]
    return found + [target["expr"] for panel in panels for target in panel["targets"]]


def scaling() -> list[str]:
    """All PromQL of autoscalers."""
    return [query for one in queries().values() for query in one.values()]


def metrics(expression: str) -> set[str]:
    """The names of metrics in one expression, recorded ones (with colons) among them."""
    return set(_NAME.findall(_TEXT.sub('""', expression)))


def scraped() -> set[str]:
    """Every metric that a rule or a panel wants of a server or a gateway."""
    return {name for each in expressions() for name in metrics(each) if ":" not in name}


def scaled_by() -> set[str]:
    """Every metric of a server that an autoscaler or the endpoint picker asks for."""
    asked = {value for flag, value in picker_flags().items() if flag.endswith("-metric") and value}
    return asked | {name for query in scaling() for name in metrics(query)}
