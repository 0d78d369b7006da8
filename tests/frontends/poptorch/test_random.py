"""Random operators: distributions held against SciPy's, seeds, and gradients through samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from scipy import stats
from torch import nn

from abele import poptorch

SIZE = 20_000
Function = Callable[[torch.Tensor], torch.Tensor]


class Drawing(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def compiled(function: Function, seed: int = 7) -> poptorch.PoplarExecutor:
    return poptorch.inferenceModel(Drawing(function), poptorch.Options().randomSeed(seed))


def sample(function: Function, x: torch.Tensor | None = None) -> np.ndarray:
    return np.asarray(compiled(function)(torch.zeros(SIZE) if x is None else x))


CONTINUOUS = {
    "rand": (lambda x: torch.rand(SIZE) + x, stats.uniform()),
    "rand_like": (torch.rand_like, stats.uniform()),
    "uniform_": (lambda x: x.clone().uniform_(-1, 3), stats.uniform(-1, 4)),
    "randn": (lambda x: torch.randn(SIZE) + x, stats.norm()),
    "normal": (lambda x: torch.normal(x + 1, x + 2), stats.norm(1, 2)),
    "normal_of_numbers": (lambda x: x + torch.normal(1.0, 2.0, (SIZE,)), stats.norm(1, 2)),
    "normal_of_mean": (lambda x: torch.normal(x + 1, 3.0), stats.norm(1, 3)),
    "normal_of_deviation": (lambda x: torch.normal(2.0, x + 3), stats.norm(2, 3)),
    "normal_": (lambda x: x.clone().normal_(2, 3), stats.norm(2, 3)),
    "log_normal_": (lambda x: x.clone().log_normal_(1, 0.5), stats.lognorm(s=0.5, scale=np.e)),
    "exponential_": (lambda x: x.clone().exponential_(2.0), stats.expon(scale=0.5)),
    "cauchy_": (lambda x: x.clone().cauchy_(1, 2), stats.cauchy(1, 2)),
    "gamma": (lambda x: torch.distributions.Gamma(x + 3, x + 2).sample(), stats.gamma(3, scale=0.5)),
    "gamma_of_small_shape": (lambda x: torch._standard_gamma(x + 0.3), stats.gamma(0.3)),
    "poisson_of_huge_rate": (lambda x: torch.poisson(x + 1e6), stats.norm(1e6 - 0.5, 1e3)),
    "normal_sample": (lambda x: torch.distributions.Normal(x, x + 1).rsample(), stats.norm()),
    "gumbel_sample": (lambda x: torch.distributions.Gumbel(x, x + 1).rsample(), stats.gumbel_r()),
    "gumbel_softmax": (lambda x: functional.gumbel_softmax(x.reshape(-1, 2))[:, 0], stats.uniform()),
}


@pytest.mark.parametrize(("function", "expected"), CONTINUOUS.values(), ids=CONTINUOUS)
def test_random_numbers__of_a_continuous_distribution__pass_kolmogorov_smirnov(function, expected) -> None:  # type: ignore[no-untyped-def]
    values = sample(function)
    assert values.dtype == np.float32
    assert stats.kstest(values.ravel(), expected.cdf).pvalue > 0.005


DISCRETE = {
    "poisson": (lambda x: torch.poisson(x + 3), stats.poisson(3)),
    "poisson_of_large_rate": (lambda x: torch.poisson(x + 100), stats.poisson(100)),
    "geometric_": (lambda x: x.clone().geometric_(0.3), stats.geom(0.3)),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), stats.bernoulli(0.3)),
    "bernoulli_of_number": (lambda x: torch.bernoulli(x, 0.9), stats.bernoulli(0.9)),
    "bernoulli_": (lambda x: x.clone().bernoulli_(x + 0.6), stats.bernoulli(0.6)),
    "randint": (lambda x: torch.randint(2, 12, (SIZE,)) + x.int(), stats.randint(2, 12)),
    "randint_like": (lambda x: torch.randint_like(x, 5), stats.randint(0, 5)),
    "random_": (lambda x: x.int().random_(9), stats.randint(0, 9)),
    "multinomial": (lambda x: torch.multinomial(x.reshape(-1, 1) + torch.tensor([4.0, 0, 6]), 1), None),
    "categorical": (
        lambda x: torch.distributions.Categorical(x.reshape(-1, 1) + torch.tensor([4.0, 0, 6])).sample(),
        None,
    ),
}


@pytest.mark.parametrize(("function", "expected"), DISCRETE.values(), ids=DISCRETE)
def test_random_numbers__of_a_discrete_distribution__pass_chi_squared(function, expected) -> None:  # type: ignore[no-untyped-def]
    values, counts = np.unique(sample(function), return_counts=True)
    wanted = np.array([0.4, 0.6]) * SIZE if expected is None else expected.pmf(values) * SIZE
    frequent = wanted > 10
    assert counts[~frequent].sum() < 0.02 * SIZE
    scale = counts[frequent].sum() / wanted[frequent].sum()
    assert abs(scale - 1) < 0.02
    if frequent.sum() > 1:
        assert stats.chisquare(counts[frequent], wanted[frequent] * scale).pvalue > 0.005


def test_multinomial__without_replacement__draws_none_twice() -> None:
    weights = torch.tensor([1.0, 2, 3, 4]).repeat(5000, 1)
    drawn = sample(lambda x: torch.multinomial(x, 3), weights)
    assert all(len(set(row)) == 3 for row in drawn)
    first = np.bincount(drawn[:, 0], minlength=4)
    assert stats.chisquare(first, np.array([0.1, 0.2, 0.3, 0.4]) * 5000).pvalue > 0.01


@pytest.mark.parametrize("length", [1, 100, 5000])
def test_randperm__of_any_length__is_a_permutation(length: int) -> None:
    drawn = sample(lambda x: torch.randperm(length) + x.int(), torch.zeros(1))
    assert sorted(drawn) == list(range(length))
    # Neither in order nor nearly so: Spearman's rho of random orders has deviation 1 / √(n − 1).
    rho = np.corrcoef(drawn, np.arange(length))[0, 1] if length > 1 else 0.0
    assert abs(rho) < 5 / np.sqrt(max(length - 1, 1))


@pytest.mark.parametrize(
    ("dropout", "field"),
    [(functional.dropout2d, (3, 2)), (functional.dropout3d, (2, 3, 2)), (functional.feature_alpha_dropout, (5,))],
)
def test_dropout_of_channels__when_training__treats_channels_alike(dropout: Function, field: tuple[int, ...]) -> None:
    out = sample(lambda x: dropout(x, 0.3, True), torch.ones(60, 50, *field))  # type: ignore[call-arg]
    out = out.reshape(60, 50, -1)
    assert (out == out[:, :, :1]).all()
    low = out[:, :, 0] < 0.99
    assert abs(low.mean() - 0.3) < 0.03


def test_alpha_dropout__of_normal_numbers__keeps_mean_and_variance() -> None:
    out = sample(lambda x: functional.alpha_dropout(x, 0.4, True), torch.randn(100_000))
    assert abs(out.mean()) < 0.02
    assert abs(out.var() - 1) < 0.03


def test_rrelu__when_training__draws_slopes_between_its_bounds() -> None:
    out = sample(lambda x: functional.rrelu(x, 0.1, 0.3, True), -torch.ones(SIZE))
    assert stats.kstest(-out, stats.uniform(0.1, 0.2).cdf).pvalue > 0.01
    np.testing.assert_allclose(sample(lambda x: functional.rrelu(x, 0.1, 0.3), -torch.ones(3)), -0.2)


def test_random_numbers__of_one_seed__are_the_same_again_and_others_in_every_call() -> None:
    x = torch.zeros(50)
    one, same, other = (compiled(torch.rand_like, seed) for seed in (1, 1, 2))
    first, second = one(x), one(x)
    assert torch.equal(first, same(x))
    assert torch.equal(second, same(x))
    assert not torch.equal(first, second)
    assert not torch.equal(first, other(x))


def test_random_numbers__of_micro_batches__differ() -> None:
    opts = poptorch.Options().randomSeed(3).deviceIterations(4)
    out = poptorch.inferenceModel(Drawing(torch.rand_like), opts)(torch.zeros(4, 25))
    assert len(np.unique(out.numpy())) == 100


def test_random_numbers__of_no_dimension__are_numbers() -> None:
    for function in (torch.randn_like, functional.dropout, lambda x: x + torch.rand(())):
        first, second = (compiled(function, seed)(torch.tensor(1.0)) for seed in (1, 9))
        assert first.shape == second.shape == ()


def test_random_numbers__written_into_a_tensor__are_those() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(3, dtype=torch.int64)
        torch.multinomial(x, 3, out=out)
        return out

    assert sorted(sample(written, torch.tensor([1.0, 2.0, 3.0]))) == [0, 1, 2]


class Sampled(nn.Module):
    """A sample of a distribution, whose mean and deviation are learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_deviation = nn.Parameter(torch.tensor([0.5])), nn.Parameter(torch.tensor([0.2]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = torch.distributions.Normal(self.mean + x, self.log_deviation.exp() + 0 * x).rsample()
        return drawn, poptorch.identity_loss((drawn * drawn).sum(), "sum")


def test_sample__of_learnt_parameters__has_the_gradient_of_the_numbers_drawn_forward() -> None:
    model, rate = Sampled(), 1e-3
    training = poptorch.trainingModel(model, poptorch.Options(), torch.optim.SGD(model.parameters(), lr=rate))
    mean, deviation = 0.5, float(np.exp(np.float32(0.2)))
    drawn, _ = training(torch.zeros(200))
    drawn = drawn.double().numpy()
    noise = (drawn - mean) / deviation
    got = [(0.5 - float(model.mean.detach())) / rate, (0.2 - float(model.log_deviation.detach())) / rate]
    np.testing.assert_allclose(got, [2 * drawn.sum(), 2 * (drawn * noise * deviation).sum()], rtol=1e-3)
