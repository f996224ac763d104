"""Reads the metrics page of a server under test."""

from __future__ import annotations

import re
import urllib.request

from trimodal.server.process import TritonServer


def series(server: TritonServer, name: str) -> dict[str, float]:
    """Labels → value of each series of this name, "" for no labels. Raises: OSError."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=10) as page:
        text = page.read().decode()
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def total(server: TritonServer, name: str, labels: str = "") -> float:
    """The sum over the series of this name whose labels hold `labels`. Raises: OSError."""
    return sum(value for key, value in series(server, name).items() if labels in key)


def listens(server: TritonServer) -> bool:
    """Whether the metrics endpoint is open; Triton opens it last, a moment after it is ready."""
    try:
        series(server, "")
    except OSError:
        return False
    return True
