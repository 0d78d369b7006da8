"""Numbers that carry their slope by one variable: an algorithm on them is its own derivative.

>>> square = Dual(3.0, 1.0) * Dual(3.0, 1.0)
>>> square.value, square.slope
(9.0, 6.0)
"""

from __future__ import annotations

from typing import Any

Number = Any


class Dual:
    """A number and its slope.

    Args:
        value: The number.
        slope: Its slope.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Number, slope: Number) -> None:
        self.value, self.slope = value, slope

    def __add__(self, other: Dual | float) -> Dual:
        value, slope = _parts(other)
        return Dual(self.value + value, self.slope + slope)

    def __sub__(self, other: Dual | float) -> Dual:
        value, slope = _parts(other)
        return Dual(self.value - value, self.slope - slope)

    def __mul__(self, other: Dual | float) -> Dual:
        value, slope = _parts(other)
        return Dual(self.value * value, self.slope * value + self.value * slope)

    def __truediv__(self, other: Dual | float) -> Dual:
        value, slope = _parts(other)
        quotient = self.value / value
        return Dual(quotient, (self.slope - quotient * slope) / value)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Dual:
        return Dual(other - self.value, 0.0 - self.slope)

    def __rtruediv__(self, other: float) -> Dual:
        return Dual(other, 0.0) / self

    def __neg__(self) -> Dual:
        return Dual(-self.value, 0.0 - self.slope)

    def __lt__(self, other: Dual | float) -> Number:
        return self.value < _parts(other)[0]

    def __gt__(self, other: Dual | float) -> Number:
        return self.value > _parts(other)[0]

    def __eq__(self, other: object) -> Number:
        return self.value == _parts(other)[0]

    def __ne__(self, other: object) -> Number:
        return self.value != _parts(other)[0]


def _parts(number: Any) -> tuple[Number, Number]:
    return (number.value, number.slope) if isinstance(number, Dual) else (number, 0.0)


class DualArithmetic:
    """The arithmetic of numbers with slopes.

    Args:
        numbers: The arithmetic of values and of slopes.
    """

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def select(self, condition: Number, then: Dual | float, otherwise: Dual | float) -> Dual:
        """``then`` where a condition holds."""
        (first, first_slope), (second, second_slope) = _parts(then), _parts(otherwise)
        choose = self.numbers.select
        return Dual(choose(condition, first, second), choose(condition, first_slope, second_slope))

    def exp(self, x: Dual) -> Dual:
        """e to the power x."""
        value = self.numbers.exp(x.value)
        return Dual(value, value * x.slope)

    def log(self, x: Dual) -> Dual:
        """Natural logarithm."""
        return Dual(self.numbers.log(x.value), x.slope / x.value)

    def sqrt(self, x: Dual) -> Dual:
        """Square root; its slope is 0 at 0."""
        root = self.numbers.sqrt(x.value)
        safe = self.numbers.select(root > 0.0, root, 1.0)
        return Dual(root, self.numbers.select(root > 0.0, 0.5 * x.slope / safe, 0.0))

    def floor(self, x: Dual) -> Dual:
        """The whole number below."""
        return Dual(self.numbers.floor(x.value), 0.0)

    def abs(self, x: Dual) -> Dual:
        """Absolute value."""
        return self.select(x.value < 0.0, -x, x)
