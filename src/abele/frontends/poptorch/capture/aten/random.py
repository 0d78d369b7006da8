"""Random numbers: every distribution is a map of standard draws, so that gradients reach its parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Expr, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.draw import unit_inside
from abele.numerics import ElementType, bool_, f32, i32, u32

Operand = Value | float

x, y, z = arg(0), arg(1), arg(2)

_TRIES = 10
"""Rounds of rejection. Of each method here a round accepts at least 9 of 10 numbers, so one in 10¹⁰ is left over."""
_WHOLE_FLOATS = {"f32": 24, "f16": 11, "bf16": 8}
"""Whole numbers up to 2 to this power are held by a floating-point type."""


def _distributed(call: OperatorCall, expression: Expr, drawn: Value, *parameters: Operand) -> Value:
    """A standard draw and parameters combined in f32, in the type of the result."""
    return call.map(expression, drawn, *parameters, common=f32)


# --- uniform ----------------------------------------------------------------------------------------------------------


@aten("aten.rand", "aten.rand_like")
def rand(call: OperatorCall, *args: object, **kwargs: object) -> Value:
    """Uniform in [0, 1)."""
    return build.uniform(call.net, call.shape, call.dtype)


@aten("aten.uniform.default")
def uniform(call: OperatorCall, value: Value, low: float = 0.0, high: float = 1.0, **kwargs: object) -> Value:
    """Uniform in [low, high)."""
    drawn = build.uniform(call.net, call.shape, call.dtype)
    if (low, high) == (0.0, 1.0):
        return drawn
    return _distributed(call, x * float(high - low) + float(low), drawn)


def _integers(call: OperatorCall, low: int, high: int) -> Value:
    if not -(2**31) <= low < high <= 2**31:
        raise call.refuse(f"in [{low}, {high}) has no lowering: integers have 32 bits")
    drawn = build.integers(call.net, call.shape, low, high, i32)
    return build.cast(call.net, drawn, call.dtype)


@aten("aten.randint.default", "aten.randint_like.default")
def randint(call: OperatorCall, *args: object, **kwargs: object) -> Value:
    """Whole numbers in [0, high)."""
    like = "randint_like" in str(call.node.target)
    high = args[1 if like else 0]
    assert isinstance(high, int)
    return _integers(call, 0, high)


@aten("aten.randint.low", "aten.randint_like.low_dtype")
def randint_between(call: OperatorCall, *args: object, **kwargs: object) -> Value:
    """Whole numbers in [low, high)."""
    like = "randint_like" in str(call.node.target)
    low, high = args[1:3] if like else args[:2]
    assert isinstance(low, int)
    assert isinstance(high, int)
    return _integers(call, low, high)


def _highest(dtype: ElementType) -> int:
    """One above the largest number that ``random_`` draws where it is given no bound."""
    if dtype.is_float:
        return int(2 ** _WHOLE_FLOATS[dtype.name]) + 1
    return 2 if dtype.name == "bool" else int(2 ** min(31, dtype.bits - (dtype.kind == "int")))


@aten("aten.random.default")
def random(call: OperatorCall, value: Value, **kwargs: object) -> Value:
    """Whole numbers as large as the type holds."""
    return _integers(call, 0, _highest(call.dtype))


@aten("aten.random.to")
def random_to(call: OperatorCall, value: Value, high: int, **kwargs: object) -> Value:
    """Whole numbers in [0, high)."""
    return _integers(call, 0, high)


@aten("aten.random.from")
def random_from(call: OperatorCall, value: Value, low: int, high: int | None = None, **kwargs: object) -> Value:
    """Whole numbers in [low, high)."""
    return _integers(call, low, _highest(call.dtype) if high is None else high)


@aten("abele.keyed_uniform")
def keyed_uniform(call: OperatorCall, keys: Value, count: int) -> Value:
    """Uniform in (0, 1), of the elements' numbers under each key."""
    net = call.net
    words = build.random_words(net, build.bitcast(net, build.cast(net, keys, i32), u32), (count,))
    return call.map(unit_inside(x), words, common=u32)


# --- normal -----------------------------------------------------------------------------------------------------------


@aten("aten.randn", "aten.randn_like")
def randn(call: OperatorCall, *args: object, **kwargs: object) -> Value:
    """Normally distributed, mean 0 and deviation 1."""
    return build.normal(call.net, call.shape, call.dtype)


@aten("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor")
def normal(call: OperatorCall, mean: Operand, std: Operand = 1.0, **kwargs: object) -> Value:
    """Normally distributed; mean and deviation of every element."""
    return _distributed(call, y + x * z, build.normal(call.net, call.shape), mean, std)


@aten("aten.normal.float_float")
def normal_of_size(call: OperatorCall, mean: float, std: float, size: Sequence[int], **kwargs: object) -> Value:
    """Normally distributed, in a shape."""
    return _distributed(call, y + x * z, build.normal(call.net, call.shape), mean, std)


@aten("aten.normal_functional")
def normal_in_place(call: OperatorCall, value: Value, mean: float = 0.0, std: float = 1.0, **kwargs: object) -> Value:
    """Normally distributed, in the shape of the value."""
    return _distributed(call, y + x * z, build.normal(call.net, call.shape), mean, std)


@aten("aten.log_normal.default")
def log_normal(call: OperatorCall, value: Value, mean: float = 1.0, std: float = 2.0, **kwargs: object) -> Value:
    """Numbers whose logarithm is normally distributed."""
    return _distributed(call, apply("exp", y + x * z), build.normal(call.net, call.shape), mean, std)


# --- others of one draw -----------------------------------------------------------------------------------------------


@aten("aten.exponential.default")
def exponential(call: OperatorCall, value: Value, rate: float = 1.0, **kwargs: object) -> Value:
    """Exponentially distributed."""
    return _distributed(call, x * (1 / rate), build.exponential(call.net, call.shape))


@aten("aten.cauchy.default")
def cauchy(call: OperatorCall, value: Value, median: float = 0.0, sigma: float = 1.0, **kwargs: object) -> Value:
    """Cauchy distributed: the tangent of a uniform angle."""
    angle = (unit_inside(x) - 0.5) * math.pi
    drawn = build.draw(call.net, apply("sin", angle) / apply("cos", angle), call.shape, f32)
    return _distributed(call, x * float(sigma) + float(median), drawn)


@aten("aten.geometric.default")
def geometric(call: OperatorCall, value: Value, p: float, **kwargs: object) -> Value:
    """The number of trials up to the first success."""
    # log u is minus an exponential number; rounding up gives 0 where u is 1.
    waiting = apply("max", apply("ceil", x * (-1.0 / math.log1p(-p) if p < 1 else 0.0)), 1.0)
    return _distributed(call, waiting, build.exponential(call.net, call.shape))


def _coin(call: OperatorCall, p: Operand, shape: Sequence[int], dtype: ElementType) -> Value:
    """One with probability ``p``, else zero."""
    net = call.net
    drawn = build.uniform(net, shape)
    if isinstance(p, Value):
        hit = build.map_(net, select(x < y, 1.0, 0.0), [drawn, build.detach(net, build.cast(net, p, f32))], f32)
    else:
        hit = build.map_(net, select(x < float(p), 1.0, 0.0), [drawn], f32)
    return build.cast(net, hit, dtype)


@aten("aten.bernoulli.default")
def bernoulli(call: OperatorCall, p: Value, **kwargs: object) -> Value:
    """Ones with the probability that each element is."""
    return _coin(call, p, call.shape, call.dtype)


@aten("aten.bernoulli.p", "aten.bernoulli.Tensor")
def bernoulli_of(call: OperatorCall, value: Value, p: Operand = 0.5, **kwargs: object) -> Value:
    """Ones with probability ``p``, in the shape of the value."""
    return _coin(call, p, call.shape, call.dtype)


# --- dropout ----------------------------------------------------------------------------------------------------------

_SELU_LIMIT = 1.7580993408473766
"""Limit of −SELU for very negative numbers; alpha dropout puts minus this in place of elements."""


@aten("aten.feature_dropout")
def feature_dropout(call: OperatorCall, value: Value, p: float, train: bool) -> Value:
    """Dropout of whole channels of every sample."""
    if not train or p == 0 or value.size == 0:
        return value
    return call.map(x * y, value, _kept(call, value, p, by_channel=True, scale=1 / (1 - p) if p < 1 else 0.0))


@aten("aten.alpha_dropout")
def alpha_dropout(call: OperatorCall, value: Value, p: float, train: bool) -> Value:
    """Dropout that keeps mean and variance of SELU activations."""
    return _alpha_dropout(call, value, p, train, by_channel=False)


@aten("aten.feature_alpha_dropout")
def feature_alpha_dropout(call: OperatorCall, value: Value, p: float, train: bool) -> Value:
    """Alpha dropout of whole channels of every sample."""
    return _alpha_dropout(call, value, p, train, by_channel=True)


def _alpha_dropout(call: OperatorCall, value: Value, p: float, train: bool, *, by_channel: bool) -> Value:
    if not train or p == 0 or value.size == 0:
        return value
    if p == 1:
        return call.map(x * 0.0, value)
    scale = 1 / math.sqrt((_SELU_LIMIT**2 * p + 1) * (1 - p))
    kept = _kept(call, value, p, by_channel=by_channel)
    shift = (y - 1.0) * (_SELU_LIMIT * scale) + _SELU_LIMIT * scale * p
    return call.map(x * y * scale + shift, value, kept)


def _kept(call: OperatorCall, value: Value, p: float, *, by_channel: bool, scale: float = 1.0) -> Value:
    """``scale`` for elements that stay and 0 for others: one choice for each, or for each channel of each sample."""
    shape = (*value.shape[:2], *(1 for _ in value.shape[2:])) if by_channel else value.shape
    drawn = build.uniform(call.net, shape)
    return build.map_(call.net, select(x < float(p), 0.0, float(scale)), [drawn], value.dtype)


@aten("aten.rrelu_with_noise", "aten.rrelu_with_noise_functional")
def rrelu(
    call: OperatorCall,
    value: Value,
    noise: Value,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: object = None,
) -> Value | tuple[Value, Value]:
    """x where it is positive, else x times a slope, drawn between the bounds in training."""
    if training:
        drawn = build.map_(call.net, x * float(upper - lower) + float(lower), [build.uniform(call.net, value.shape)])
        slopes = call.map(select(x > 0.0, 1.0, y), value, drawn)
        result = call.map(x * y, value, build.detach(call.net, slopes))
    else:
        slopes, result = noise, call.map(select(x > 0.0, x, x * float((lower + upper) / 2)), value)
    return (result, slopes) if "functional" in str(call.node.target) else result


# --- by rejection -----------------------------------------------------------------------------------------------------


@aten("aten._standard_gamma")
def standard_gamma(call: OperatorCall, shape: Value, generator: object = None) -> Value:
    """Gamma distributed numbers of scale 1.

    Marsaglia and Tsang (2000): d·(1 + c·n)³ with a normal n is accepted in at least 95 of 100 cases where the shape is
    1 or more; a smaller one is raised by 1 and its result multiplied by u^(1 / shape).
    """
    net = call.net
    given = build.detach(net, build.cast(net, shape, f32))
    d = build.map_(net, select(x < 1.0, x + 1.0, x) - 1 / 3, [given])

    def attempt(body: BlockBuilder, trip: Value, found: Value) -> list[Value]:
        normal, drawn = build.normal(body, found.shape), build.exponential(body, found.shape)
        root = 1.0 + y * (1 / 3) * apply("rsqrt", z)
        cube = root * root * root
        # log u < n²/2 + d − d·v + d·log v, of v > 0; an exponential number is −log u.
        bound = 0.5 * y * y + z - z * cube + z * apply("log", apply("max", cube, 1e-30))
        accepted = apply("and", apply("and", x < 0.0, cube > 0.0), -arg(3) < bound)
        return [build.map_(body, select(accepted, cube * z, x), [found, normal, d, drawn])]

    start = build.full(net, -1.0, given.shape, f32)
    (found,) = build.loop(net, _TRIES, [start], attempt)
    boost = build.exponential(net, given.shape)
    raised = select(z < 1.0, apply("exp", -y / z), 1.0)
    settled = select(x < 0.0, arg(3), x)
    return build.cast(net, build.map_(net, settled * raised, [found, boost, given, d]), call.dtype)


_SMALL_RATE = 10.0
_SEARCHED = 44
"""Numbers that the search goes through: a Poisson number of rate 10 is larger in one case of 10¹⁵."""


@aten("aten.poisson")
def poisson(call: OperatorCall, rate: Value, generator: object = None) -> Value:
    """Poisson distributed numbers: small rates by inversion, others by rejection."""
    net = call.net
    given = build.detach(net, build.cast(net, rate, f32))
    small, large = _searched_poisson(net, given), _rejected_poisson(net, given)
    return call.map(select(z < _SMALL_RATE, x, y), small, large, given, common=f32)


def _searched_poisson(net: BlockBuilder, rate: Value) -> Value:
    """The number at which the cumulative probability passes a uniform number."""
    drawn = build.uniform(net, rate.shape)
    limited = build.map_(net, apply("min", x, _SMALL_RATE), [rate])

    def step(body: BlockBuilder, trip: Value, share: Value, passed: Value, count: Value) -> list[Value]:
        turn = build.cast(body, trip, f32)
        beyond = build.map_(body, x + select(y < z, 0.0, 1.0), [count, drawn, passed])
        later = build.map_(body, x * y / (z + 1.0), [share, limited, turn])
        return [later, build.map_(body, x + y, [passed, later]), beyond]

    first = build.map_(net, apply("exp", -x), [limited])
    start = [first, first, build.full(net, 0.0, rate.shape, f32)]
    return build.loop(net, _SEARCHED, start, step)[2]


def _rejected_poisson(net: BlockBuilder, rate: Value) -> Value:
    """Hörmann's transformed rejection (1993, PTRS), which accepts more the larger the rate is.

    The logarithm of the probability of k beside that of the mode is written with k / rate − 1, so that it keeps
    its digits where both are large.
    """
    mean = build.map_(net, apply("max", x, _SMALL_RATE), [rate])
    width = 0.931 + 2.53 * apply("sqrt", y)
    reach = 0.02483 * width - 0.059

    def attempt(body: BlockBuilder, trip: Value, found: Value) -> list[Value]:
        angle = build.draw(body, unit_inside(x) - 0.5, found.shape, f32)
        height = build.draw(body, unit_inside(x), found.shape, f32)
        edge = 0.5 - apply("abs", x)
        number = build.map_(body, apply("floor", (2.0 * reach / edge + width) * x + y + 0.43), [angle, mean])
        candidate = arg(2)
        k = apply("max", candidate, 0.5)
        off = (k - y) / y
        likely = y * (off - (1.0 + off) * apply("log1p", off))
        likely = likely - 0.5 * apply("log", 2.0 * math.pi * k) - 1.0 / (12.0 * k)
        quick = apply("and", edge >= 0.07, arg(3) <= 0.9277 - 3.6224 / (width - 2.0))
        outside = apply("or", candidate < 0.0, apply("and", edge < 0.013, arg(3) > edge))
        scale = (1.1239 + 1.1328 / (width - 3.4)) / (reach / (edge * edge) + width)
        accepted = apply("or", quick, apply("and", apply("not", outside), apply("log", arg(3) * scale) <= likely))
        keep = select(apply("and", arg(4) < 0.0, accepted), candidate, arg(4))
        return [build.map_(body, keep, [angle, mean, number, height, found])]

    (found,) = build.loop(net, _TRIES, [build.full(net, -1.0, rate.shape, f32)], attempt)
    return build.map_(net, select(x < 0.0, apply("floor", y), x), [found, mean])


# --- choices ----------------------------------------------------------------------------------------------------------


@aten("aten.multinomial")
def multinomial(
    call: OperatorCall, weights: Value, num_samples: int, replacement: bool = False, *, generator: object = None
) -> Value:
    """Numbers of categories, drawn by their weights.

    The category with the least exponential number over weight is chosen in proportion to its weight, and those with
    the next least are what drawing without putting back chooses next. With putting back, every draw has exponential
    numbers of its own.
    """
    net = call.net
    given = build.detach(net, build.cast(net, weights, f32))
    rows = build.reshape(net, given, (-1, 1, given.shape[-1]))
    batch, _, categories = rows.shape
    if replacement:
        drawn = build.exponential(net, (batch, num_samples, categories))
        return build.reshape(net, _least(net, build.map_(net, x / y, [drawn, rows])), call.shape)
    drawn = build.exponential(net, (batch, categories))
    waiting = build.map_(net, x / y, [drawn, build.reshape(net, rows, (batch, categories))])
    chosen = []
    numbers = net.constant(range(categories), i32)
    for _ in range(num_samples):
        chosen.append(build.reshape(net, _least(net, waiting), (batch, 1)))
        gone = build.map_(net, x.eq(y), [numbers, chosen[-1]], bool_)
        waiting = build.map_(net, select(y, math.inf, x), [waiting, gone])
    return build.reshape(net, build.concat(net, chosen, 1), call.shape)


def _least(net: BlockBuilder, values: Value) -> Value:
    """Along the last dimension, the first index with the smallest value."""
    extent = values.shape[-1]
    best = build.reduce(net, values, [-1], "min", keep=True)
    numbers = net.constant(range(extent), i32)
    places = build.map_(net, select(x.eq(y), z, extent), [values, best, numbers], i32)
    return build.reduce(net, places, [-1], "min")


_MOST_RANKED = 2048
"""Words whose ranks are counted, each against all others, rather than sorted: where either takes as many cycles."""


@aten("aten.randperm.default")
def randperm(call: OperatorCall, n: int, **kwargs: object) -> Value:
    """A random order: the ranks of random words, or where these were before they were sorted.

    Equal words in order of their places would favour these orders. So there are two words for each place, and only
    places that are equal in both keep theirs: with ranks the second word decides between equal first ones, and sorting
    the second words makes them follow each other as the first ones say.
    """
    net = call.net
    if n <= _MOST_RANKED:
        return build.cast(net, _ranks(net, n), call.dtype)
    first, second = (build.sort(net, build.draw(net, x, (n,), u32))[1] for _ in range(2))
    order = build.look_up(net, build.reshape(net, first, (n, 1)), second)
    return build.cast(net, build.reshape(net, order, (n,)), call.dtype)


def _ranks(net: BlockBuilder, n: int) -> Value:
    """The ranks of random words among each other, by two words and the place."""
    words = build.draw(net, unit_inside(x), (n,), f32)
    ties = build.draw(net, unit_inside(x), (n,), f32)
    places = net.constant(range(n), i32)
    before = apply(
        "or", x < y, apply("and", x.eq(y), apply("or", z < arg(3), apply("and", z.eq(arg(3)), arg(4) < arg(5))))
    )
    columns = [build.reshape(net, v, (n, 1)) for v in (words, ties, places)]
    operands = [v for pair in zip((words, ties, places), columns, strict=True) for v in pair]
    lower = build.map_(net, select(before, 1, 0), operands, i32)
    return build.reduce(net, lower, [1])
