"""Writes numbers for people: durations, rates, shares, sizes. None, where nothing is known, is a dot."""

from __future__ import annotations

NOTHING = "·"
Number = float | None


def seconds(value: Number) -> str:
    """12 µs, 3.4 ms, 1.25 s."""
    if value is None:
        return NOTHING
    if value < 0.9995e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:.3g} s"


def ms(value: float) -> str:
    """Seconds as milliseconds, with as many digits as can be read: 12.34, 1,234."""
    return f"{value * 1e3:,.2f}" if value < 1 else f"{value * 1e3:,.0f}"


def rate(value: Number) -> str:
    """0, 1.25, 99, 12.3k."""
    if value is None:
        return NOTHING
    if value >= 9_999.5:
        return f"{value / 1e3:.1f}k"
    return f"{value:.0f}" if value >= 99.5 or value == 0 else f"{value:.3g}"


def count(value: Number) -> str:
    return NOTHING if value is None else f"{value:.0f}"


def decimal(value: Number) -> str:
    """At most two places: 1.5."""
    return NOTHING if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def share(value: Number) -> str:
    return NOTHING if value is None else f"{value:.0%}"


def size(value: float) -> str:
    """Bytes: 12 KiB, 512 MiB, 3.4 GiB, 141 GiB."""
    for unit, power in (("KiB", 10), ("MiB", 20)):
        if value < 1 << (power + 10):
            return f"{value / (1 << power):.0f} {unit}"
    return f"{value / (1 << 30):.{0 if value >= 10 << 30 else 1}f} GiB"
