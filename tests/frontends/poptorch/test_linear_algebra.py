"""torch.linalg, real Fourier transforms and special functions: values and gradients against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from poptorch_kit import Apply, Lossy, check_against_torch
from torch import linalg, nn

from abele import poptorch

Function = Callable[..., Any]
SHAPE = (2, 4, 4)


def positive(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def sign_free(x: torch.Tensor) -> torch.Tensor:
    """Columns without the choice of their sign."""
    return x * x[..., :1, :]


def by_factors(x: torch.Tensor) -> torch.Tensor:
    packed, pivots = linalg.lu_factor(x)
    p, lower, upper = torch.lu_unpack(packed, pivots)
    return (p @ lower) * upper


SQUARE: dict[str, Function] = {
    "cholesky": lambda x: linalg.cholesky(positive(x)),
    "cholesky_upper": lambda x: linalg.cholesky(positive(x), upper=True),
    "cholesky_ex": lambda x: linalg.cholesky_ex(positive(x)).L,
    "cholesky_solve": lambda x: torch.cholesky_solve(x[..., :2], linalg.cholesky(positive(x))),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(linalg.cholesky(positive(x[0]))),
    "solve": lambda x: linalg.solve(x, x[..., :3] * 2),
    "solve_vector": lambda x: linalg.solve(x[0], x[1, 0]),
    "solve_right": lambda x: linalg.solve(x, x[..., :3, :], left=False),
    "solve_broadcast": lambda x: linalg.solve(x[0], x),
    "solve_triangular": lambda x: linalg.solve_triangular(x, x[..., :3], upper=True),
    "solve_triangular_right": lambda x: linalg.solve_triangular(x, x[..., :3, :], upper=False, left=False),
    "solve_unitriangular": lambda x: linalg.solve_triangular(x, x, upper=False, unitriangular=True),
    "inverse": lambda x: torch.inverse(x) + linalg.inv_ex(x).inverse,
    "determinant": linalg.det,
    "slogdet": lambda x: torch.stack(list(linalg.slogdet(x))),
    "logdet": lambda x: torch.logdet(positive(x)),
    "lu": lambda x: linalg.lu(x)[1] @ linalg.lu(x)[2] * linalg.lu(x)[1],
    "lu_factors": by_factors,
    "lu_solve": lambda x: linalg.lu_solve(*linalg.lu_factor(x), x[..., :2]),
    "lu_solve_adjoint": lambda x: linalg.lu_solve(*linalg.lu_factor(x), x[..., :2], adjoint=True),
    "lu_solve_right": lambda x: linalg.lu_solve(*linalg.lu_factor(x), x[..., :2, :], left=False),
    "qr": lambda x: linalg.qr(x)[0] * linalg.qr(x)[1],
    "householder": lambda x: linalg.householder_product(x, x[..., 0]),
    "ormqr": lambda x: torch.ormqr(x, x[..., 0], x[..., :2]),
    "eigvalsh": lambda x: linalg.eigvalsh(x + x.mT),
    "eigh": lambda x: sign_free(linalg.eigh(x + x.mT)[1]) + linalg.eigh(x + x.mT)[0][..., None],
    "svdvals": linalg.svdvals,
    "svd": lambda x: sign_free(linalg.svd(x)[0]) + linalg.svd(x)[1][..., None],
    "nuclear_norm": lambda x: linalg.matrix_norm(x, "nuc") + linalg.matrix_norm(x, 2) + linalg.matrix_norm(x, "fro"),
    "pinv": linalg.pinv,
    "pinv_of_symmetric": lambda x: linalg.pinv(positive(x), hermitian=True),
    "cond": linalg.cond,
    "matrix_exp": lambda x: torch.matrix_exp(x * 0.3),
    "matrix_power": lambda x: linalg.matrix_power(x, 5) + linalg.matrix_power(x, 0),
    "negative_power": lambda x: linalg.matrix_power(x, -2),
    "multi_dot": lambda x: linalg.multi_dot([x[0], x[1], x[0, :, :2]]),
    "tensorinv": lambda x: linalg.tensorinv(x[0].reshape(2, 2, 4), ind=2),
    "tensorsolve": lambda x: linalg.tensorsolve(x[0].reshape(2, 2, 4), x[1, :2, :2]),
    "lstsq_square": lambda x: linalg.lstsq(x, x[..., :2] * 3).solution,
}


@pytest.mark.parametrize("function", SQUARE.values(), ids=SQUARE)
def test_linear_algebra__of_square_matrices__equals_pytorch(function: Function) -> None:
    torch.manual_seed(4)
    x = torch.randn(SHAPE, dtype=torch.float64) + 2 * torch.eye(4, dtype=torch.float64)
    check_against_torch(Lossy(Apply(function, SHAPE)).double(), (x,), rtol=1e-7)


OBLONG: dict[str, Function] = {
    "qr": lambda x: linalg.qr(x)[0] @ torch.ones(3, 2, dtype=x.dtype),
    "svd": lambda x: sign_free(linalg.svd(x, full_matrices=False)[0]),
    "pinv": linalg.pinv,
    "pinv_of_wide": lambda x: linalg.pinv(x.mT),
    "lu": lambda x: linalg.lu(x)[1] @ linalg.lu(x.mT)[2][..., :3, :],
    "lstsq": lambda x: linalg.lstsq(x, x[..., :2] ** 2).solution,
    "lstsq_residuals": lambda x: linalg.lstsq(x, x[..., :2] ** 2, driver="gels").residuals,
    "lstsq_of_wide": lambda x: linalg.lstsq(x.mT, x.mT[..., :2] ** 2).solution,
    "irfft": lambda x: torch.fft.irfft(x, dim=1) + torch.fft.irfft(x, n=8, dim=1),
    "irfft_odd": lambda x: torch.fft.irfft(x, n=5, norm="ortho"),
    "hfft": lambda x: torch.fft.hfft(x, norm="forward"),
    "irfft2": torch.fft.irfft2,
    "hfft2": lambda x: torch.fft.hfft2(x, s=(6, 5)),
    "irfftn": lambda x: torch.fft.irfftn(x, dim=(0, 1), norm="forward"),
    "hfftn": torch.fft.hfftn,
    "special": lambda x: torch.special.erfcx(x) + torch.special.i1e(x) + torch.lgamma(x) + torch.erfinv(x * 0.1),
    "polygamma": lambda x: torch.polygamma(0, x) + torch.polygamma(1, x.abs() + 1) + torch.polygamma(3, x.abs() + 1),
    "log_ndtr": lambda x: torch.special.log_ndtr(x * 3) + torch.special.entr(x.abs()),
    "igammac": lambda x: torch.igamma(torch.ones_like(x).detach() * 2.5, x.abs()),
    "zeta": lambda x: torch.special.zeta(torch.full_like(x, 3.0).detach(), x.abs() + 0.5),
}


@pytest.mark.parametrize("function", OBLONG.values(), ids=OBLONG)
def test_linear_algebra__of_oblong_matrices__equals_pytorch(function: Function) -> None:
    torch.manual_seed(5)
    x = torch.randn((2, 5, 3), dtype=torch.float64)
    check_against_torch(Lossy(Apply(function, (2, 5, 3))).double(), (x,), rtol=1e-7)


def test_polynomials__of_degrees_in_a_tensor__equal_pytorch() -> None:
    class Polynomials(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
            special = torch.special
            return (
                special.chebyshev_polynomial_t(x, n),
                special.hermite_polynomial_he(x, n),
                special.laguerre_polynomial_l(x, 3),
                special.legendre_polynomial_p(0.25, n),
                special.shifted_chebyshev_polynomial_u(x, n),
            )

    x, n = torch.linspace(-1.5, 1.5, 12), torch.arange(-1.0, 11.0)
    for got, expected in zip(poptorch.inferenceModel(Polynomials())(x, n), Polynomials()(x, n), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_triangular_solve__of_the_transpose__equals_pytorch() -> None:
    x = torch.randn(SHAPE, dtype=torch.float64) + 2 * torch.eye(4, dtype=torch.float64)
    function = lambda x: torch.triangular_solve(x[..., :2], x, upper=False, transpose=True)[0]  # noqa: E731
    check_against_torch(Lossy(Apply(function, SHAPE)).double(), (x,), rtol=1e-7)


def test_results__written_into_a_tensor__are_those_returned() -> None:
    class Into(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            return torch.linalg.inv(x, out=out) + out

    x = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    torch.testing.assert_close(poptorch.inferenceModel(Into())(x), 2 * torch.linalg.inv(x))


def test_training__through_a_solve_on_the_device__follows_pytorch() -> None:
    class Gaussian(torch.nn.Module):
        """The likelihood of a Gaussian process, whose length and noise are learnt."""

        def __init__(self) -> None:
            super().__init__()
            self.length, self.noise = torch.nn.Parameter(torch.tensor(0.7)), torch.nn.Parameter(torch.tensor(0.3))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            distance = (x[:, None] - x) ** 2
            kernel = torch.exp(-distance / (2 * self.length**2)) + self.noise * torch.eye(len(x))
            factor = linalg.cholesky(kernel)
            weights = torch.cholesky_solve(y[:, None], factor)
            loss = (y[:, None] * weights).sum() + torch.logdet(kernel)
            return weights, poptorch.identity_loss(loss, "none")

    torch.manual_seed(0)
    x, y = torch.linspace(0, 3, 10), torch.sin(torch.linspace(0, 6, 10))
    model, oracle = Gaussian(), Gaussian()
    training = poptorch.trainingModel(model, poptorch.Options(), torch.optim.SGD(model.parameters(), lr=1e-3))
    reference = torch.optim.SGD(oracle.parameters(), lr=1e-3)
    for _ in range(3):
        _, loss = training(x, y)
        reference.zero_grad()
        _, expected = oracle(x, y)
        expected.backward()
        reference.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model.length.detach(), oracle.length.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_lstsq__rank_is_deficient__gives_the_least_solution_and_the_rank(driver: str, shape: tuple[int, int]) -> None:
    class Solved(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = linalg.lstsq(a, b, driver=driver)
            return found.solution, found.rank

    torch.manual_seed(3)
    a, b = torch.randn(shape[0], 2) @ torch.randn(2, shape[1]), torch.randn(shape[0], 3)
    executor = poptorch.inferenceModel(Solved())
    solution, rank = executor(a, b)
    executor.destroy()
    # NumPy is the oracle: PyTorch's own gelsy finds other ranks.
    wanted = np.linalg.lstsq(a.double().numpy(), b.double().numpy(), rcond=1e-6)[0]
    np.testing.assert_allclose(solution.numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert rank.item() == 2


def test_resize_as__of_as_many_elements__has_the_shape_of_the_other() -> None:
    class Resized(nn.Module):
        def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return (x * 2).resize_as_(other) + other

    executor = poptorch.inferenceModel(Resized())
    made = executor(torch.arange(6.0), torch.ones(2, 3))
    executor.destroy()
    assert made.tolist() == [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
