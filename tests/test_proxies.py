"""The environment of a machine behind a proxy."""

from __future__ import annotations

import pytest

from trimodal.proxies import exempt_loopback


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "corp.example, localhost"}, "corp.example,localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "b", "no_proxy": "a"}, "a,b,localhost,127.0.0.1,::1"),
    ],
)
def test_this_machine_is_exempt_and_what_was_stays(given: dict[str, str], expected: str) -> None:
    environment = dict(given)
    exempt_loopback(environment)
    assert environment == {"no_proxy": expected, "NO_PROXY": expected}
    exempt_loopback(environment)
    assert environment["no_proxy"] == expected


def test_a_star_exempts_everything_already() -> None:
    environment = {"no_proxy": "*"}
    exempt_loopback(environment)
    assert environment == {"no_proxy": "*"}
