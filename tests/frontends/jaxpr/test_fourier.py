"""Complex numbers, and Fourier transforms by parts, against JAX and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from abele.errors import UnsupportedOpError
from abele.frontends.jaxpr.complex_numbers import has_complex, without_complex
from abele.network import NetworkBuilder, evaluate
from abele.network.ops.fourier import LARGEST_STAGE, Complex, Transform, to_real, transformed
from frontends.jaxpr.jaxpr_kit import captured, check, mostly_slow

RNG = np.random.default_rng(0)


def real(*shape):
    return RNG.normal(size=shape).astype("f4")


def complex_(*shape):
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype("c8")


def near(fn, *args, digits=1e-5, **options):
    check(fn, *args, rtol=digits, atol=digits, **options)


# --- transforms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [1, 2, 7, 64, 67, 96, 130, 360, 1024])
def test_transform_of_any_extent__there_and_back__is_that_of_numpy(extent):
    net, (x, y) = NetworkBuilder(), (real(3, extent), real(3, extent))
    a, b = (net.input(x.shape, "f32", name) for name in "ab")
    whole = transformed(net, Complex(a, b), 1, Transform(extent))
    half = transformed(net, Complex(a), 1, Transform(extent), extent // 2 + 1)
    back = to_real(net, half, 1, Transform(extent, 1.0, 1 / extent))
    padded = transformed(net, Complex(a), 1, Transform(2 * extent))
    values = evaluate(net.finish(), {a: x, b: y}, precise=False)

    def error(made, wanted):
        found = values[made.real] + 1j * values[made.imaginary] if isinstance(made, Complex) else values[made]
        return np.abs(found - wanted).max() / np.abs(wanted).max()

    assert error(whole, np.fft.fft(x + 1j * y)) < 1e-6
    assert error(half, np.fft.rfft(x)) < 1e-6
    assert error(back, x) < 1e-6
    assert error(padded, np.fft.fft(x, 2 * extent)) < 1e-6


def test_transform_of_a_composite_extent__is_products_of_its_factors():
    net = NetworkBuilder()
    x = net.input((5, 4096), "f32", "x")
    transformed(net, Complex(x), 1, Transform(4096))
    inner = [op.inputs[1].shape for op in net.ops if op.kind == "matmul"]
    assert inner == [(LARGEST_STAGE, 2 * LARGEST_STAGE), (2 * LARGEST_STAGE, 2 * LARGEST_STAGE)]


TRANSFORMS = {
    "fft": (jnp.fft.fft, complex_(3, 8)),
    "ifft": (jnp.fft.ifft, complex_(3, 9)),
    "rfft": (jnp.fft.rfft, real(3, 9)),
    "irfft": (lambda x: jnp.fft.irfft(x, 9), complex_(3, 5)),
    "fft2": (jnp.fft.fft2, complex_(2, 4, 5)),
    "fftn": (jnp.fft.fftn, complex_(3, 4, 5)),
    "ifftn": (jnp.fft.ifftn, complex_(3, 4, 5)),
    "rfftn": (jnp.fft.rfftn, real(3, 4, 6)),
    "irfftn": (jnp.fft.irfftn, complex_(3, 4, 4)),
    "along another axis": (lambda x: jnp.fft.rfft(x, axis=0), real(8, 3)),
    "hfft": (jnp.fft.hfft, complex_(5)),
    "ortho": (lambda x: jnp.fft.fft(x, norm="ortho"), complex_(6)),
    "shifted": (jnp.fft.fftshift, complex_(5)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform__is_that_of_jax(name):
    near(*TRANSFORMS[name])


# --- complex numbers --------------------------------------------------------------------------------------------------

FUNCTIONS = "exp log sqrt sin cos tan sinh cosh tanh sign square conj real imag abs angle log1p expm1 reciprocal"
A, B, MATRIX = complex_(7), complex_(7), complex_(3, 4)
EXPRESSIONS = {
    "arithmetic": (lambda a, b: (a + b, a - b, a * b, a / b, -a), A, B),
    "powers": (lambda a, b: (a**b, a**-3, a**2, lax.rsqrt(a), jax.nn.sigmoid(a)), A, B),
    "comparisons": (lambda a: (a == a, a != 2, jnp.isfinite(a)), A),
    "products": (lambda a, b: (a @ b.T, jnp.einsum("ij,kj->ik", a, b), jnp.vdot(a, b)), MATRIX, complex_(3, 4)),
    "sums": (lambda a: (a.sum(0), a.mean(), jnp.cumsum(a, 1), jnp.prod(a, 1)), MATRIX),
    "choices": (lambda a: jnp.where(a.real > 0, a, 2j), A),
    "views": (lambda a: (a.reshape(2, 6).T[::-1, 1:], jnp.pad(a, 1), jnp.roll(a, 1, 0)), MATRIX),
    "joined": (lambda a: jnp.concatenate([a, a * 1j]), A),
    "converted": (lambda x: x.astype(jnp.complex64) * 1j, real(3)),
    "convolved": (lambda a, b: jnp.convolve(a, b), A, complex_(3)),
    "indexed": (lambda a: (a[jnp.array([0, 2])], a.at[1].set(2j), a.at[jnp.array([1, 1])].add(2j)), A),
    "multiplied": (lambda a: (a.at[jnp.array([1, 1])].multiply(2), a.at[1:3].multiply(1 - 2j)), A),
}
LOOPS = {
    "scan": (lambda a: lax.scan(lambda s, x: (s * x, s + x), a[0], a), A),
    "fori_loop": (lambda a: lax.fori_loop(0, 3, lambda i, s: s * s * 0.5, a), A),
    "cond": (lambda p, a: lax.cond(p > 0, lambda z: z * 1j, lambda z: z, a), real(), A),
    "while_loop": (
        lambda a: lax.while_loop(lambda s: jnp.abs(s).sum() < 100.0, lambda s: s * (1 + 1j), a),
        A,
    ),
}


@pytest.mark.parametrize("name", mostly_slow(FUNCTIONS.split(), "log", "sqrt", "tan", "sign", "abs", "conj", "expm1"))
def test_function_of_a_complex_number__is_that_of_jax(name):
    near(getattr(jnp, name), A)


@pytest.mark.parametrize("name", mostly_slow(EXPRESSIONS, "arithmetic", "comparisons", "products", "views", "indexed"))
def test_expression_of_complex_numbers__is_that_of_jax(name):
    near(*EXPRESSIONS[name], digits=1e-4)


@pytest.mark.parametrize("name", LOOPS)
def test_loop_over_complex_numbers__is_that_of_jax(name):
    near(*LOOPS[name], digits=1e-4)


def test_sizes__of_numbers_whose_squares_are_none__are_those_of_jax():
    huge = np.array([3e30 + 4e30j, 3e-30 - 4e-30j, 0, np.inf + 1j], "c8")
    check(jnp.abs, huge, rtol=1e-6, atol=0)
    check(lambda a: a / a, huge[:2], rtol=1e-5, atol=1e-6)


def test_program_without_complex_numbers__is_left_as_it_is():
    jaxpr = jax.make_jaxpr(jnp.sin)(real(3))
    assert without_complex(jaxpr) is jaxpr
    found = without_complex(jax.make_jaxpr(lambda x: jnp.fft.ifft(jnp.fft.fft(x)))(real(8)))
    assert not has_complex(found)
    assert [v.aval.shape for v in found.jaxpr.outvars] == [(8, 2)]


def test_primitive_without_a_rule_for_complex_numbers__is_refused_by_name_and_line():
    with pytest.raises(UnsupportedOpError, match="sort in the function has complex numbers") as caught:
        captured(lambda a: jnp.sort(jnp.exp(a)), A)
    assert "test_fourier.py" in str(caught.value)


# --- programs that go through frequencies -----------------------------------------------------------------------------


def spectral_convolution(x, weights):
    """A layer of a Fourier neural operator: some frequencies, mixed over channels by complex weights."""
    modes = weights.shape[-1]
    frequencies = jnp.fft.rfft(x, axis=-1)
    mixed = jnp.einsum("bim,iom->bom", frequencies[..., :modes], weights)
    return jnp.fft.irfft(jnp.pad(mixed, ((0, 0), (0, 0), (0, frequencies.shape[-1] - modes))), x.shape[-1], axis=-1)


def test_spectral_convolution__and_its_gradients__are_those_of_jax():
    x, weights = real(2, 3, 16), complex_(3, 4, 5)
    near(spectral_convolution, x, weights)
    near(jax.grad(lambda *a: jnp.sum(spectral_convolution(*a) ** 2), (0, 1)), x, weights, digits=1e-4)


@pytest.mark.slow
def test_gradient_of_a_spectral_convolution__compiled__is_that_of_jax():
    x, weights = real(2, 3, 16), complex_(3, 4, 5)
    near(jax.grad(lambda *a: jnp.sum(spectral_convolution(*a) ** 2)), x, weights, digits=1e-4, native=True)


def test_power_spectrum__and_its_gradient__are_those_of_jax():
    def fn(x):
        return jnp.sum(jnp.log1p(jnp.abs(jnp.fft.rfft(x)) ** 2))

    near(jax.value_and_grad(fn), real(2, 16), digits=1e-4)
    near(jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.fft(x)))), real(2, 16), digits=1e-4)


def test_step_of_a_spectral_solver__is_that_of_jax():
    waves = np.fft.rfftfreq(32, 1 / 32).astype("f4")

    def step(u):
        # Burgers' equation: the derivative and the diffusion by frequencies.
        slope = jnp.fft.irfft(1j * waves * jnp.fft.rfft(u), 32)
        rest = jnp.fft.rfft(u - 1e-3 * u * slope)
        return jnp.fft.irfft(rest * jnp.exp(-1e-4 * waves**2), 32)

    u = np.sin(np.linspace(0, 2 * np.pi, 32, endpoint=False)).astype("f4")
    near(lambda u: step(step(u)), u, native=True)
