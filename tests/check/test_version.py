from __future__ import annotations

import pytest

from trimodal.check.version import of_number, parse_release, shown


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("24.10", (24, 10)),
        ("2.51", (24, 10)),
        ("2.51.0", (24, 10)),
        ("2.29", (22, 12)),
        ("2.59", (25, 6)),
        ("2.60", (25, 8)),  # 25.07 was 2.59.1
        ("2.65.0", (26, 1)),
        ("2.71", (26, 7)),
    ],
)
def test_a_version_is_the_month_of_its_container(text: str, release: tuple[int, int]) -> None:
    assert parse_release(text) == release


@pytest.mark.parametrize("text", ["", "24", "24.13", "1.51", "24.10-py3", "two"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"24\.10 or 2\.51"):
        parse_release(text)


def test_it_is_shown_as_the_container_is_called() -> None:
    assert shown(of_number(61)) == "25.09"
