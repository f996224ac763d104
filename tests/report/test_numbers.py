from __future__ import annotations

import pytest

from trimodal.report.numbers import Number, count, decimal, ms, rate, seconds, share, size


@pytest.mark.parametrize(
    ("shown", "value", "text"),
    [
        (seconds, None, "·"),
        (seconds, 1e-5, "10 µs"),
        (seconds, 0.02, "20 ms"),
        (seconds, 1.25, "1.25 s"),
        (ms, 0.01234, "12.34"),
        (ms, 1.2344, "1,234"),
        (rate, None, "·"),
        (rate, 0, "0"),
        (rate, 1.254, "1.25"),
        (rate, 99.6, "100"),
        (rate, 12_345, "12.3k"),
        (count, 3.0, "3"),
        (decimal, 1.50, "1.5"),
        (decimal, 2.0, "2"),
        (share, 0.345, "34%"),
        (size, 0, "0 KiB"),
        (size, 105_000, "103 KiB"),
        (size, 90 << 20, "90 MiB"),
        (size, 1023 << 20, "1023 MiB"),
        (size, 1 << 30, "1.0 GiB"),
        (size, 141 << 30, "141 GiB"),
    ],
)
def test_a_number_for_people(shown, value: Number, text: str) -> None:  # type: ignore[no-untyped-def]
    assert shown(value) == text
