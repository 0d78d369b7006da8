"""The special functions, in arithmetic of 64 bits.

Each is written once, for numbers that have Python's operators and an :class:`Arithmetic` for what has none. NumPy
arrays are such numbers, and so are values of generated code: the meaning of an operation and its code are one text.
In 64 bits a fit of eleven digits is an f32 without further care: cancellations near zeros and poles, which single
precision would have to be steered around, cost no digit that an f32 has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from abele.expr.special import fits
from abele.expr.special.dual import Dual, DualArithmetic
from abele.llvm.math import TWO_OVER_PI

Number = Any
"""A NumPy array in 64 bits, or a value of generated code: has Python's arithmetic and comparisons."""

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
"""B₂ₖ / (2k·(2k − 1))."""
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
"""B₂ₖ / 2k."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""B₂ₖ."""
_SHIFT = 8
"""Recurrences move arguments this far up, where asymptotic series have eleven digits."""
_ZETA_TERMS = 16
_SERIES_TERMS, _FRACTION_TERMS = 60, 40
_BETA_TERMS = 50


class Arithmetic(Protocol):
    """Operations on numbers that have no operator."""

    def select(self, condition: Number, then: Number, otherwise: Number) -> Number:
        """``then`` where a condition holds."""

    def exp(self, x: Number) -> Number:
        """e to the power x."""

    def log(self, x: Number) -> Number:
        """Natural logarithm."""

    def sqrt(self, x: Number) -> Number:
        """Square root."""

    def floor(self, x: Number) -> Number:
        """The whole number below."""

    def abs(self, x: Number) -> Number:
        """Absolute value."""


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """Horner's rule; coefficients from the constant term up."""
    *rest, result = coefficients
    total: Number = result
    for coefficient in reversed(rest):
        total = total * x + coefficient
    return total


def _fitted(x: Number, low: float, high: float, coefficients: Sequence[float]) -> Number:
    """A fit on [low, high], of which ``x`` is an element."""
    scale = 2.0 / (high - low)
    return polynomial(x * scale - (low * scale + 1.0), coefficients)


def _least(m: Arithmetic, x: Number, bound: float) -> Number:
    """The smaller of a number and a bound."""
    return m.select(x < bound, x, bound)


def _most(m: Arithmetic, x: Number, bound: float) -> Number:
    """The larger of a number and a bound."""
    return m.select(x > bound, x, bound)


# --- circular functions -----------------------------------------------------------------------------------------------

_SIN = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8))
_COS = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(9))


def sine_and_cosine(m: Arithmetic, x: Number) -> tuple[Number, Number]:
    """Both of an angle that is a finite f32 ≥ 0 (of others within ±1), from its remainder within ±π/4."""
    # Products with parts of 2/π are exact, so whole turns can be taken off each.
    total: Number = 0.0
    for piece in TWO_OVER_PI:
        part = x * piece
        total = total + (part - m.floor(part * 0.25) * 4.0)
    turns = m.floor(total + 0.5)
    return _by_quarters(m, (total - turns) * (math.pi / 2), turns)


def _by_quarters(m: Arithmetic, rest: Number, turns: Number) -> tuple[Number, Number]:
    """Sine and cosine of ``rest``, within ±π/4, plus ``turns`` quarters of a turn."""
    square = rest * rest
    sine, cosine = rest * polynomial(square, _SIN), polynomial(square, _COS)
    quarter = turns - m.floor(turns * 0.25) * 4.0
    odd = (quarter == 1.0) | (quarter == 3.0)
    first, second = m.select(odd, cosine, sine), m.select(odd, sine, cosine)
    return (
        m.select(quarter > 1.5, -first, first),
        m.select((quarter == 1.0) | (quarter == 2.0), -second, second),
    )


def _sine_of_turns(m: Arithmetic, x: Number) -> tuple[Number, Number]:
    """sin πx and cos πx up to a common sign: exact zeros at whole numbers."""
    rest = x - m.floor(x + 0.5)
    turns = m.floor(rest * 2.0 + 0.5)
    return _by_quarters(m, (rest - turns * 0.5) * math.pi, turns)


# --- gamma ------------------------------------------------------------------------------------------------------------


def log_gamma(m: Arithmetic, x: Number) -> Number:
    """log |Γ(x)|: Stirling's series at 8 and above, the recurrence below, the reflection below 1/2."""
    low = x < 0.5
    positive = m.select(low, 1.0 - x, x)
    result = _log_gamma_positive(m, positive)
    sine, _ = _sine_of_turns(m, x)
    reflected = math.log(math.pi) - m.log(m.abs(sine)) - result
    result = m.select(low, reflected, result)
    pole = (x == m.floor(x)) & (x < 0.5)
    result = m.select((x == 1.0) | (x == 2.0), 0.0, result)
    return m.select(pole | (m.abs(x) == math.inf), math.inf, result)


def _log_gamma_positive(m: Arithmetic, x: Number) -> Number:
    small = x < _SHIFT
    start = m.select(small, x, 1.0)
    product = start
    for step in range(1, _SHIFT):
        product = product * (start + float(step))
    z = m.select(small, x + float(_SHIFT), x)
    inverse = 1.0 / z
    series = inverse * polynomial(inverse * inverse, _STIRLING)
    result = (z - 0.5) * m.log(z) - z + _HALF_LOG_TWO_PI + series
    return result - m.select(small, m.log(product), 0.0)


def digamma(m: Arithmetic, x: Number) -> Number:
    """The slope of log Γ."""
    low = x < 0.5
    positive = m.select(low, 1.0 - x, x)
    small = positive < _SHIFT
    start, below = m.select(small, positive, 1.0), 0.0
    for step in range(_SHIFT):
        below = below + 1.0 / (start + float(step))
    z = m.select(small, positive + float(_SHIFT), positive)
    inverse = 1.0 / z
    square = inverse * inverse
    result = m.log(z) - 0.5 * inverse - square * polynomial(square, _DIGAMMA) - m.select(small, below, 0.0)
    sine, cosine = _sine_of_turns(m, x)
    whole = x == m.floor(x)
    reflected = result - math.pi * cosine / m.select(whole, 1.0, sine)
    result = m.select(low, m.select(whole, math.nan, reflected), result)
    # At 0 the limit from the side that the sign of zero says.
    return m.select(x == 0.0, -1.0 / x, m.select(x == math.inf, math.inf, result))


def trigamma(m: Arithmetic, x: Number) -> Number:
    """The slope of digamma: Σ 1 / (x + k)²."""
    low = x < 0.5
    positive = m.select(low, 1.0 - x, x)
    small = positive < _SHIFT
    start, below = m.select(small, positive, 1.0), 0.0
    for step in range(_SHIFT):
        term = 1.0 / (start + float(step))
        below = below + term * term
    z = m.select(small, positive + float(_SHIFT), positive)
    inverse = 1.0 / z
    square = inverse * inverse
    series = inverse * square * polynomial(square, _BERNOULLI)
    result = inverse + 0.5 * square + series + m.select(small, below, 0.0)
    sine, _ = _sine_of_turns(m, x)
    ratio = math.pi / sine
    return m.select(low, ratio * ratio - result, result)


def zeta(m: Arithmetic, s: Number, q: Number) -> Number:
    """Hurwitz's Σ 1 / (q + k)ˢ of s > 1: sixteen terms, and Euler and Maclaurin's formula for the others."""
    total, terms = 0.0, _ZETA_TERMS
    whole = s == m.floor(s)
    odd = whole & (m.floor(s * 0.5) * 2.0 != s)
    for step in range(terms):
        base = q + float(step)
        term = m.exp(-s * m.log(m.abs(base)))
        total = total + m.select(odd & (base < 0.0), -term, term)
    # Beyond this power nothing that f32 has is left of the other terms, and their factors would overflow.
    large = s > 300.0
    s = m.select(large, 300.0, s)
    w = q + float(terms)
    inverse = 1.0 / w
    power = m.exp(-s * m.log(w))
    tail = power * w / (s - 1.0) + 0.5 * power
    factor, rising = power * inverse, s
    for index, number in enumerate(_BERNOULLI, 1):
        tail = tail + factor * rising * (number / math.factorial(2 * index))
        rising = rising * (s + float(2 * index - 1)) * (s + float(2 * index))
        factor = factor * inverse * inverse
    result = total + m.select(large, 0.0, tail)
    pole = (s == 1.0) | ((q < 0.5) & (q == m.floor(q)))
    value = m.select(pole, math.inf, m.select((q < 0.0) & ~whole, math.nan, result))
    return m.select((s < 1.0) | (s != s) | (q != q), math.nan, value)


def _gamma_share(m: Arithmetic, a: Number, x: Number) -> tuple[Number, Number]:
    """Lower and upper regularised incomplete gamma functions of positive a and x.

    By the power series where x is below a + 1 and by the continued fraction above, both for a fixed number of terms,
    which suffices for a up to 20 and where x is far from a. Beyond, in the zone where neither converges, by Temme's
    uniform expansion.
    """
    # Of a + 1, as logarithm and series have parts 1 / a that cancel in slopes of small a.
    prefix = m.exp(a * m.log(x) - x - _log_gamma_positive(m, a + 1.0))
    near = _least(m, x, 1e6)
    term = series = near * 0.0 + 1.0
    for step in range(1, _SERIES_TERMS):
        term = term * near / (a + float(step))
        series = series + term
    below = x + (2.0 * _FRACTION_TERMS + 1.0) - a
    for step in range(_FRACTION_TERMS, 0, -1):
        below = (x + (2.0 * step - 1.0) - a) + float(step) * (a - float(step)) / below
    by_series = x < a + 1.0
    lower, upper = prefix * series, prefix * a / below
    rest = 1.0 - lower
    rest = m.select(rest < 1e-15, 0.0, rest)  # It is above that but for tiny a, where rounding has made it.
    lower, upper = m.select(by_series, lower, 1.0 - upper), m.select(by_series, rest, upper)
    ratio = x / a
    eta = m.sqrt(_most(m, 2.0 * (ratio - 1.0 - m.log(ratio)), 0.0))
    eta = m.select(ratio < 1.0, -eta, eta)
    uniform = (a > 20.0) & (eta < 1.0) & (eta > -1.0)
    eta = m.select(uniform, eta, 0.0)
    inverse = 1.0 / a
    rest = polynomial(inverse, [polynomial(eta, c) for c in (fits.TEMME0, fits.TEMME1, fits.TEMME2, fits.TEMME3)])
    rest = rest * m.exp(-0.5 * a * eta * eta) * m.sqrt(inverse * (0.5 / math.pi))
    tail = 0.5 * complementary_error(m, eta * m.sqrt(a * 0.5))
    other = 0.5 * complementary_error(m, -eta * m.sqrt(a * 0.5))
    return m.select(uniform, other - rest, lower), m.select(uniform, tail + rest, upper)


def _gamma_edges(m: Arithmetic, a: Number, x: Number, *, at_zero: float) -> tuple[Number, Number, Number, Number]:
    """Arguments that the general case takes, and where it holds, with the value elsewhere."""
    invalid = (a < 0.0) | (x < 0.0) | ((a == 0.0) & (x == 0.0)) | ((a == math.inf) & (x == math.inf))
    to_zero = (x == 0.0) | (a == math.inf)
    to_one = (a == 0.0) | (x == math.inf)
    special = m.select(invalid, math.nan, m.select(to_zero, at_zero, 1.0 - at_zero))
    general = ~(invalid | to_zero | to_one | (a != a) | (x != x))
    special = m.select((a != a) | (x != x), math.nan, special)
    return m.select(general, a, 1.0), m.select(general, x, 1.0), general, special


def gamma_lower(m: Arithmetic, a: Number, x: Number) -> Number:
    """The regularised lower incomplete gamma function."""
    a, x, general, special = _gamma_edges(m, a, x, at_zero=0.0)
    return m.select(general, _gamma_share(m, a, x)[0], special)


def gamma_upper(m: Arithmetic, a: Number, x: Number) -> Number:
    """The regularised upper incomplete gamma function."""
    a, x, general, special = _gamma_edges(m, a, x, at_zero=1.0)
    return m.select(general, _gamma_share(m, a, x)[1], special)


def gamma_lower_slope(m: Arithmetic, a: Number, x: Number) -> Number:
    """The slope by a of the regularised lower incomplete gamma function: its algorithm, on numbers with slopes."""
    a, x, general, special = _gamma_edges(m, a, x, at_zero=0.0)
    # Where both are equal, the square root that Temme's expansion begins with has no slope.
    beside = m.select(x == a, x * (1.0 + 1e-9), x)
    lower, _ = _gamma_share(DualArithmetic(m), Dual(a, 1.0), Dual(beside, 0.0))
    return m.select(general, lower.slope, special * 0.0)


def beta_share(m: Arithmetic, a: Number, b: Number, x: Number) -> Number:
    """The regularised incomplete beta function of positive a and b, and x from 0 to 1.

    By its continued fraction, whose terms alternate, for a fixed number of them: from the side where it converges in
    about √max(a, b) of them.
    """
    outside = ~((a > 0.0) & (b > 0.0) & ((x > 0.0) | (x == 0.0)) & ((x < 1.0) | (x == 1.0)))
    edge = outside | (x == 0.0) | (x == 1.0)
    p, q, y = m.select(edge, 1.0, a), m.select(edge, 1.0, b), m.select(edge, 0.5, x)
    swapped = y * (p + q + 2.0) > p + 1.0
    p, q, y = m.select(swapped, q, p), m.select(swapped, p, q), m.select(swapped, 1.0 - y, y)
    below: Number = 1.0 + 0.0 * y
    for k in range(_BETA_TERMS, 0, -1):
        two = p + 2.0 * k
        below = 1.0 + float(k) * (q - float(k)) * y / ((two - 1.0) * two) / below
        odd = p + float(k - 1)
        below = 1.0 - odd * (odd + q) * y / ((two - 2.0) * (two - 1.0)) / below
    logarithm = _log_gamma_positive(m, p + q) - _log_gamma_positive(m, p) - _log_gamma_positive(m, q)
    value = m.exp(logarithm + p * m.log(y) + q * m.log(1.0 - y)) / (p * below)
    value = m.select(swapped, 1.0 - value, value)
    return m.select(outside, math.nan, m.select(edge, x, value))


# --- error functions --------------------------------------------------------------------------------------------------


def _scaled_of_positive(x: Number) -> Number:
    """exp(x²) · erfc(x) of x ≥ 0."""
    return polynomial(1.0 - 6.0 / (x + 3.0), fits.ERFCX) / (x + 1.0)


def complementary_error(m: Arithmetic, x: Number) -> Number:
    """1 − erf x."""
    size = _least(m, m.abs(x), 30.0)
    tail = m.exp(-size * size) * _scaled_of_positive(size)
    return m.select(x != x, math.nan, m.select(x < 0.0, 2.0 - tail, tail))


def scaled_complementary_error(m: Arithmetic, x: Number) -> Number:
    """exp(x²) · (1 − erf x)."""
    tail = _scaled_of_positive(m.abs(x))
    bounded = _most(m, x, -30.0)
    return m.select(x != x, math.nan, m.select(x < 0.0, 2.0 * m.exp(bounded * bounded) - tail, tail))


_CENTRE_END = 6.0
_TAIL = (2.449489742783178, 11.0)


def _inverse_error_ratio(m: Arithmetic, w: Number) -> Number:
    """erf⁻¹(x) / x, from w = −log(1 − x²)."""
    centre = _fitted(_least(m, w, _CENTRE_END), 0.0, _CENTRE_END, fits.ERFINV_CENTRE)
    root = _least(m, m.sqrt(_most(m, w, _CENTRE_END)), _TAIL[1])
    return m.select(w < _CENTRE_END, centre, _fitted(root, *_TAIL, fits.ERFINV_TAIL))


def inverse_error(m: Arithmetic, x: Number) -> Number:
    """The inverse of the error function."""
    inside = (1.0 - x) * (1.0 + x)
    safe = m.select(inside > 0.0, inside, 1.0)
    value = x * _inverse_error_ratio(m, -m.log(safe))
    return m.select(inside > 0.0, value, m.select(inside == 0.0, x * math.inf, math.nan))


def inverse_normal(m: Arithmetic, p: Number) -> Number:
    """The inverse of the normal distribution."""
    upper = ~(p < 0.5)
    y = 2.0 * m.select(upper, 1.0 - p, p)
    inside = y * (2.0 - y)
    safe = m.select(inside > 0.0, inside, 1.0)
    value = (1.0 - y) * _inverse_error_ratio(m, -m.log(safe)) * math.sqrt(2.0)
    value = m.select(inside > 0.0, value, m.select(inside == 0.0, math.inf, math.nan))
    return m.select(upper, value, -value)


# --- Bessel functions -------------------------------------------------------------------------------------------------

_NEAR = 8.0
"""Bound of x between its fits and those of modulus and phase."""


def scaled_i0(m: Arithmetic, x: Number) -> Number:
    """exp(−|x|) · I₀(x)."""
    size = m.abs(x)
    near = _fitted(_least(m, size, _NEAR), 0.0, _NEAR, fits.I0_NEAR)
    far = _most(m, size, _NEAR)
    value = m.select(size < _NEAR, near, _fitted(_NEAR / far, 0.0, 1.0, fits.I0_FAR) / m.sqrt(far))
    return m.select(x != x, math.nan, value)


def scaled_i1(m: Arithmetic, x: Number) -> Number:
    """exp(−|x|) · I₁(x)."""
    size = m.abs(x)
    bounded = _least(m, size, _NEAR)
    near = x * _fitted(bounded, 0.0, _NEAR, fits.I1_NEAR)
    far = _most(m, size, _NEAR)
    value = _fitted(_NEAR / far, 0.0, 1.0, fits.I1_FAR) / m.sqrt(far)
    value = m.select(size < _NEAR, near, m.select(x < 0.0, -value, value))
    return m.select(x != x, math.nan, value)


def i0(m: Arithmetic, x: Number) -> Number:
    """The modified Bessel function I₀."""
    size = _least(m, m.abs(x), 700.0)
    return m.select(x != x, math.nan, m.exp(size) * scaled_i0(m, size))


def i1(m: Arithmetic, x: Number) -> Number:
    """The modified Bessel function I₁."""
    size = _least(m, m.abs(x), 700.0)
    bounded = m.select(x < 0.0, _most(m, x, -700.0), _least(m, x, 700.0))
    return m.select(x != x, math.nan, m.exp(size) * scaled_i1(m, bounded))


def _far(m: Arithmetic, x: Number, order: int) -> tuple[Number, Number]:
    """J and Y of x ≥ 8."""
    size = _most(m, x, _NEAR)
    inverse = 1.0 / size
    u = (_NEAR * _NEAR) * inverse * inverse
    p = _fitted(u, 0.0, 1.0, fits.P1 if order else fits.P0)
    q = _fitted(u, 0.0, 1.0, fits.Q1 if order else fits.Q0) * inverse
    # Turned by an eighth afterwards, as the difference would lose digits of large angles: by three for order 1.
    sine, cosine = sine_and_cosine(m, size)
    sine, cosine = (-sine - cosine, sine - cosine) if order else (sine - cosine, sine + cosine)
    scale = m.sqrt(inverse * (1.0 / math.pi))
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def _near(m: Arithmetic, x: Number, coefficients: Sequence[float]) -> Number:
    size = _least(m, m.abs(x), _NEAR)
    return _fitted(size * size, 0.0, _NEAR * _NEAR, coefficients)


def j0(m: Arithmetic, x: Number) -> Number:
    """The Bessel function J₀."""
    size = m.abs(x)
    value = m.select(size < _NEAR, _near(m, x, fits.J0_NEAR), _far(m, size, 0)[0])
    return m.select(size == math.inf, 0.0, m.select(x != x, math.nan, value))


def j1(m: Arithmetic, x: Number) -> Number:
    """The Bessel function J₁."""
    size = m.abs(x)
    far = _far(m, size, 1)[0]
    value = m.select(size < _NEAR, x * _near(m, x, fits.J1_NEAR), m.select(x < 0.0, -far, far))
    return m.select(size == math.inf, 0.0, m.select(x != x, math.nan, value))


def y0(m: Arithmetic, x: Number) -> Number:
    """The Bessel function Y₀."""
    safe = m.select(x > 0.0, x, 1.0)
    near = _near(m, safe, fits.Y0_NEAR) + (2.0 / math.pi) * m.log(safe) * _near(m, safe, fits.J0_NEAR)
    value = m.select(safe < _NEAR, near, _far(m, safe, 0)[1])
    return _of_positive(m, x, m.select(x == math.inf, 0.0, value), -math.inf)


def y1(m: Arithmetic, x: Number) -> Number:
    """The Bessel function Y₁."""
    safe = m.select(x > 0.0, x, 1.0)
    first = safe * _near(m, safe, fits.J1_NEAR)
    near = safe * _near(m, safe, fits.Y1_NEAR) + (2.0 / math.pi) * (m.log(safe) * first - 1.0 / safe)
    value = m.select(safe < _NEAR, near, _far(m, safe, 1)[1])
    return _of_positive(m, x, m.select(x == math.inf, 0.0, value), -math.inf)


def _of_positive(m: Arithmetic, x: Number, value: Number, at_zero: float) -> Number:
    """A value of positive x, the limit at 0, not-a-number below."""
    return m.select(x > 0.0, value, m.select(x == 0.0, at_zero, math.nan))


def _scaled_k(m: Arithmetic, x: Number, order: int, *, scaled: bool) -> Number:
    safe = m.select(x > 0.0, x, 1.0)
    small = _least(m, safe, 2.0)
    square, growth = small * small, m.log(small * 0.5)
    if order:
        near = growth * small * _fitted(square, 0.0, 4.0, fits.I1_SMALL) + 1.0 / small
        near = near + small * _fitted(square, 0.0, 4.0, fits.K1_NEAR)
    else:
        near = _fitted(square, 0.0, 4.0, fits.K0_NEAR) - growth * _fitted(square, 0.0, 4.0, fits.I0_SMALL)
    large = _most(m, safe, 2.0)
    far = _fitted(2.0 / large, 0.0, 1.0, fits.K1_FAR if order else fits.K0_FAR) / m.sqrt(large)
    if scaled:
        near = near * m.exp(small)
    else:
        far = far * m.exp(-_least(m, large, 700.0))
    value = m.select(safe < 2.0, near, far)
    return _of_positive(m, x, m.select(x == math.inf, 0.0, value), math.inf)


def k0(m: Arithmetic, x: Number) -> Number:
    """The modified Bessel function K₀."""
    return _scaled_k(m, x, 0, scaled=False)


def k1(m: Arithmetic, x: Number) -> Number:
    """The modified Bessel function K₁."""
    return _scaled_k(m, x, 1, scaled=False)


def scaled_k0(m: Arithmetic, x: Number) -> Number:
    """exp(x) · K₀(x)."""
    return _scaled_k(m, x, 0, scaled=True)


def scaled_k1(m: Arithmetic, x: Number) -> Number:
    """exp(x) · K₁(x)."""
    return _scaled_k(m, x, 1, scaled=True)


_AIRY = (-5.0, 2.0)


def airy(m: Arithmetic, x: Number) -> Number:
    """Airy's function Ai: a fit in the middle, and on both sides its asymptotic forms."""
    middle = _fitted(_least(m, _most(m, x, _AIRY[0]), _AIRY[1]), *_AIRY, fits.AIRY_NEAR)
    above = _least(m, _most(m, x, _AIRY[1]), 1e4)
    root = m.sqrt(above)
    angle = above * root * (2.0 / 3.0)
    decay = m.exp(-_least(m, angle, 700.0)) * (0.5 / math.sqrt(math.pi)) / m.sqrt(root)
    right = decay * _fitted(1.0 / angle, 0.0, 0.54, fits.AIRY_FAR)
    below = _most(m, -x, -_AIRY[0])
    root = m.sqrt(below)
    angle = below * root * (2.0 / 3.0)
    inverse = 1.0 / angle
    u = inverse * inverse
    sine, cosine = sine_and_cosine(m, angle + math.pi / 4)
    wave = sine * _fitted(u, 0.0, 0.0181, fits.AIRY_F) - cosine * inverse * _fitted(u, 0.0, 0.0181, fits.AIRY_G)
    left = wave * (1.0 / math.sqrt(math.pi)) / m.sqrt(root)
    value = m.select(x > _AIRY[1], right, m.select(x < _AIRY[0], left, middle))
    return m.select(x != x, math.nan, m.select(m.abs(x) == math.inf, 0.0, value))
