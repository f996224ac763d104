"""Fits a line to recent observations: least squares with forgetting and weights of 0 or more."""

from __future__ import annotations

from collections.abc import Sequence

_SWEEPS = 25
_OUTLIER = 5.0  # beyond so many mean errors an observation counts as if it were just there
_LEAST = 1e-4  # no observation weighs more than one of this size
_SETTLED = 10  # observations before one can be told from an outlier


class LeastSquares:
    """y ≈ weights · x with weights ≥ 0, fitted online.

    An observation's variance is taken to grow with y, as that of a sum of steps does, so a slow spell is
    soon forgotten when things are fast again. Each observation multiplies the weight of all earlier ones
    by `forgetting`. What recent observations cannot tell apart (all alike, or two features in step) stays
    as it was learned before. One wild observation moves the fit little; a row of them widens what counts
    as wild and is followed.
    """

    def __init__(self, features: int, forgetting: float) -> None:
        self._forgetting = forgetting
        self._products = [[0.0] * features for _ in range(features)]
        self._targets = [0.0] * features
        self._scale = 0.0
        self.weights = [0.0] * features
        self.count = 0

    def predict(self, x: Sequence[float]) -> float:
        """The fitted value; 0 before the first observation."""
        return sum(weight * value for weight, value in zip(self.weights, x, strict=True))

    def learn(self, x: Sequence[float], y: float) -> None:
        """Takes one observation."""
        y = self._tamed(y, self.predict(x))
        keep, weight = self._forgetting, 1 / max(y, _LEAST)
        for row, (products, value) in enumerate(zip(self._products, x, strict=True)):
            for column, other in enumerate(x):
                products[column] = keep * products[column] + weight * value * other
            self._targets[row] = keep * self._targets[row] + weight * value * y
        self.count += 1
        self._fit()

    def _tamed(self, y: float, expected: float) -> float:
        error = y - expected
        limit = _OUTLIER * self._scale
        if self.count >= _SETTLED and abs(error) > limit:
            error = limit if error > 0 else -limit
        # 1/n at first, then a tenth: the mean error of the last few.
        self._scale += (abs(error) - self._scale) * max(0.1, 1 / (self.count + 1))
        self._scale = max(self._scale, 1e-3 * abs(y))  # a perfect fit must not make all else an outlier
        return expected + error

    def _fit(self) -> None:
        """Coordinate descent from the last fit: three features need no more, and 0 is a bound like any."""
        weights = self.weights
        for _ in range(_SWEEPS):
            for row, products in enumerate(self._products):
                own = products[row]
                if own > 0:
                    rest = sum(product * weight for product, weight in zip(products, weights, strict=True))
                    weights[row] = max(0.0, weights[row] + (self._targets[row] - rest) / own)
