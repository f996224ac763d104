"""Holds a check's figures against their limits: one that was asked for refuses, one of ours warns first.

No limit of a GPU's kernels was measured: a good engine may lie above ours, after half an hour of building. So
ours refuse what is grossly wrong, such as NaN, and warn of what lies between.
"""

from __future__ import annotations

from typing import Any

from trimodal.errors import ArtefactError

GROSS = 10  # times the limit of an error
LEAST = 0.5  # of the limit of an agreement
WARNING = "warning"  # key of the check's figures: where the report and the manifest tell it


def hold_error(
    figures: dict[str, Any],
    key: str,
    usual: float,
    asked: float | None,
    *,
    who: str,
    whose: str = "the graph's",
    option: str = "",
) -> None:
    """Holds an error, relative, against `asked`, or else against `usual`, with a warning in `figures`.

    Args:
        who: begins the sentence, as "the plan's logits".
        whose: figures they are compared with.
        option: that `asked` comes from.

    Raises:
        ArtefactError: it is above what was asked for, more than 10 times the usual, or no number.
    """
    error, limit = figures[key], GROSS * usual if asked is None else asked
    if not error <= limit:  # so that NaN is above every limit
        bound = f"{option} is {asked:g}" if asked is not None else f"at most {usual:g} is usual"
        raise ArtefactError(f"{who} differ from {whose} by {error:.2g} (relative), {bound}")
    if error > usual and asked is None:
        _warn(figures, f"{key} {error:.2g} is above {usual:g}, a limit that no GPU has confirmed")


def hold_agreement(figures: dict[str, Any], key: str, usual: float, asked: float | None, *, who: str) -> None:
    """Holds a share of equal answers against `asked`, or else against `usual`, with a warning in `figures`.

    Raises:
        ArtefactError: it is below what was asked for, or below half of the usual.
    """
    share = figures[key]
    figures["min_agreement"] = limit = LEAST * usual if asked is None else asked
    if not share >= limit:
        bound = f"--min-agreement {limit:g}" if asked is not None else f"half of the usual {usual:g}"
        raise ArtefactError(f"{who} on {share:.1%}, less than {bound}")
    if share < usual and asked is None:
        _warn(figures, f"{key} {share:.4f} is below {usual:g}, a limit that no GPU has confirmed")


def _warn(figures: dict[str, Any], sentence: str) -> None:
    figures[WARNING] = f"{figures[WARNING]}; {sentence}" if WARNING in figures else sentence
