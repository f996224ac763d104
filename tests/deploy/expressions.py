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
_SUM = re.compile(r"\b(?:sum|max|min|avg|count) by \(([^)]*)\) \(")
_MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)""')
_NAME = re.compile(r"(?<![\w:])(?:nv|process|trimodal)[_:][\w:]+")


def rules() -> Iterator[dict[str, Any]]:
    """All recording and alerting rules."""
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from group["rules"]


def expressions() -> list[str]:
    """All PromQL of rules and dashboards."""
    return [rule["expr"] for rule in rules()] + [query for query, _ in panels()]


def scaling() -> list[str]:
    """All PromQL of autoscalers."""
    return [query for one in queries().values() for query in one.values()]


def metrics(expression: str) -> set[str]:
    """The names of metrics in one expression, recorded ones (with colons) among them."""
    return set(_NAME.findall(_TEXT.sub('""', expression)))


def labels(expression: str) -> Iterator[tuple[str, str]]:
    """Each metric with each label that the expression selects by, or adds up by."""
    bare = _TEXT.sub('""', expression)
    for name, matchers in re.findall(r"([\w:]+)\{([^}]*)\}", bare):
        yield from ((name, label) for label in _MATCHER.findall(matchers))
    for found in _SUM.finditer(bare):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(bare[end], 0)
            end += 1
        for name in metrics(bare[found.end() : end]):
            yield from ((name, label.strip()) for label in found[1].split(","))


def panels() -> Iterator[tuple[str, str]]:
    """The PromQL and the legend of every line of every dashboard."""
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            yield from ((target["expr"], target["legendFormat"]) for target in panel["targets"])


def scraped() -> set[str]:
    """Every metric that a rule or a panel wants of a server or a gateway."""
    return {name for each in expressions() for name in metrics(each) if ":" not in name}


def scaled_by() -> set[str]:
    """Every metric of a server that an autoscaler or the endpoint picker asks for."""
    asked = {value for flag, value in picker_flags().items() if flag.endswith("-metric") and value}
    return asked | {name for query in scaling() for name in metrics(query)}
