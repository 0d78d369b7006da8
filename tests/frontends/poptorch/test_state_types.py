"""Sums of gradients and state of optimisers by type, step by step against NumPy that rounds where the device stores.

The rules are written here from their papers, in float64, with a rounding to float16 or float32 wherever a tensor is
stored: each gradient, each sum over micro-batches, each sum over replicas, each moment, each weight.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from abele import poptorch
from support import sweeps

SIZE, STEPS = 384, 5
HALF, SINGLE = torch.half, torch.float
START = np.linspace(-2, 2, SIZE).astype(np.float16)
# Sums of few powers of two: with 0.9 or 0.1, products of float16 numbers lie half-way between two others all the time,
# and which of the two they become is a matter of the last bit of 0.9.
LR, DECAY, MOMENTUM, ALPHA, BETAS, EPS = 1 / 32, 1 / 64, 7 / 8, 7 / 8, (7 / 8, 31 / 32), 1e-4

Array = np.ndarray[Any, Any]


class Slope(nn.Module):
    """A loss of which the gradient is what is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(START))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss((self.weight.float() * x).sum(), reduction="none")


@dataclass(frozen=True)
class Case:
    """One way to train.

    Attributes:
        rule: Name of the optimiser.
        accum: Type of sums.
        first: Type of the momentum, or first moment.
        second: Type of the second moment.
        micro: Micro-batches to an update.
        replicas: Replicas.
        running: True for running means; None for what the type of sums asks for.
        scale: Of the loss.
        clip: Largest norm.
        mean: False for sums over micro-batches and replicas.
        combined: True if the momentum takes up the gradients of micro-batches.
        velocity_scaling: Factor of the momentum as it is stored.
        dampening: Of the momentum, from the second step on.
    """

    rule: str
    accum: torch.dtype = SINGLE
    first: torch.dtype = SINGLE
    second: torch.dtype = SINGLE
    micro: int = 1
    replicas: int = 1
    running: bool | None = None
    scale: float = 16.0
    clip: float = float("inf")
    mean: bool = True
    combined: bool = False
    velocity_scaling: float = 1.0
    dampening: float = 0.0

    @property
    def runs(self) -> bool:
        """True if means run."""
        follows = self.accum == HALF and not self.combined
        return self.mean and (follows if self.running is None else self.running)

    @property
    def data(self) -> Array:
        """Slopes, [steps, micro-batches, replicas, elements]."""
        shape = (STEPS, self.micro, self.replicas, SIZE)
        return np.random.default_rng(3).normal(size=shape).astype("f4")

    def __str__(self) -> str:
        plain = Case(self.rule)
        differs = [(n, v) for n, v in vars(self).items() if n != "rule" and v != getattr(plain, n)]
        return "-".join([self.rule, *(f"{n}={v}".replace("torch.", "") for n, v in differs)])


def stored(value: Any, kind: torch.dtype) -> Array:
    """Numbers as a tensor of the type holds them."""
    return np.asarray(value).astype("f2" if kind == HALF else "f4").astype("f8")


def summed(case: Case, step: int) -> Array:
    """Gradient that the update of a step reads: the sum, or mean, of all scaled gradients, scale and shares taken
    out.
    """
    gradients = stored(case.scale * case.data[step], HALF)
    totals = []
    for replica in range(case.replicas):
        total = np.zeros(SIZE)
        for number, gradient in enumerate(gradients[:, replica]):
            if case.micro == 1:
                total = gradient
            elif case.runs:
                total = stored(total * number / (number + 1) + gradient / (number + 1), case.accum)
            elif case.accum == SINGLE and case.mean:
                total = stored(total + gradient / case.micro, SINGLE)
            else:
                total = stored(total + gradient, case.accum)
        totals.append(total)
    kind = HALF if case.micro == 1 else case.accum
    if case.runs and case.replicas > 1:
        totals = [stored(total / case.replicas, kind) for total in totals]
    whole = totals[0]
    for other in totals[1:]:
        whole = stored(whole + other, kind)
    if case.mean and not case.runs:
        whole = whole / case.replicas / (case.micro if case.accum == HALF else 1)
    whole = whole / case.scale
    return np.asarray(whole * min(1.0, case.clip / float(np.linalg.norm(whole))))


class Reference:
    """One optimiser in NumPy.

    Attributes:
        weight: The parameter.
        state: State as the device holds it.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.weight = START.astype("f8")
        self.state = {"Accl1": np.zeros(SIZE), "Accl2": np.zeros(SIZE), "Accl3": np.zeros(SIZE)}
        self.steps = 0

    def run(self) -> Reference:
        for step in range(STEPS):
            self.steps += 1
            if self.case.combined and self.case.micro > 1 and not self.case.runs and np.isinf(self.case.clip):
                self.weight = stored(self.combined(step), HALF)
                continue
            self.weight = stored(getattr(self, self.case.rule)(summed(self.case, step)), HALF)
        return self

    def keep(self, name: str, value: Array, kind: torch.dtype) -> None:
        self.state[name] = stored(value, kind)

    def sgd(self, g: Array) -> Array:
        fresh = (1 - (self.case.dampening if self.steps > 1 else 0)) * (g + DECAY * self.weight)
        v = MOMENTUM * self.state["Accl1"] + fresh * self.case.velocity_scaling
        self.keep("Accl1", v, self.case.first)
        return self.weight - LR * v / self.case.velocity_scaling

    def combined(self, step: int) -> Array:
        """SGD with one tensor: replicas shrink their shares of it, add each gradient, and sum."""
        case = self.case
        fresh = (1 - (case.dampening if self.steps > 1 else 0)) * case.velocity_scaling
        share = 1 / case.micro / case.replicas if case.mean else 1.0
        totals = []
        for replica in range(case.replicas):
            v = (MOMENTUM * self.state["Accl1"] + fresh * DECAY * self.weight) / case.replicas
            v = stored(v, case.first)
            for gradient in stored(case.scale * case.data[step, :, replica], HALF):
                v = stored(v + gradient * share * fresh / case.scale, case.first)
            totals.append(v)
        v = totals[0]
        for other in totals[1:]:
            v = stored(v + other, case.first)
        self.keep("Accl1", v, case.first)
        return self.weight - LR * v / case.velocity_scaling

    def moments(self, g: Array) -> tuple[Array, Array]:
        """Both, of which the device keeps those in float16 with the scale of the loss, and its square."""
        scaled = HALF in (self.case.first, self.case.second)
        first = self.case.scale if scaled and self.case.first == HALF else 1.0
        second = self.case.scale**2 if scaled and self.case.second == HALF else 1.0
        m = BETAS[0] * self.state["Accl1"] / first + (1 - BETAS[0]) * g
        v = BETAS[1] * self.state["Accl2"] / second + (1 - BETAS[1]) * g * g
        self.keep("Accl1", m * first, self.case.first)
        self.keep("Accl2", v * second, self.case.second)
        return m, v

    def direction(self, m: Array, v: Array) -> Array:
        return m / (1 - BETAS[0] ** self.steps) / (np.sqrt(v / (1 - BETAS[1] ** self.steps)) + EPS)

    def adam(self, g: Array) -> Array:
        return self.weight - LR * self.direction(*self.moments(g + DECAY * self.weight))

    def adamw(self, g: Array) -> Array:
        return self.weight - LR * (self.direction(*self.moments(g)) + DECAY * self.weight)

    def plain_adamw(self, g: Array) -> Array:
        m, v = self.moments(g)
        return self.weight - LR * (m / (np.sqrt(v) + EPS) + DECAY * self.weight)

    def lamb(self, g: Array) -> Array:
        x = self.direction(*self.moments(g)) + DECAY * self.weight
        return np.asarray(self.weight - LR * np.linalg.norm(self.weight) / np.linalg.norm(x) * x)

    def rmsprop(self, g: Array) -> Array:
        g = g + DECAY * self.weight
        s = ALPHA * self.state["Accl1"] + (1 - ALPHA) * g * g
        mean = ALPHA * self.state["Accl3"] + (1 - ALPHA) * g
        b = MOMENTUM * self.state["Accl2"] + g / (np.sqrt(s - mean * mean) + EPS)
        self.keep("Accl1", s, self.case.second)
        self.keep("Accl3", mean, self.case.first)
        self.keep("Accl2", b, self.case.first)
        return np.asarray(self.weight - LR * b)


def optimiser(case: Case, parameters: Any) -> Any:
    common: dict[str, Any] = {"lr": LR, "weight_decay": DECAY, "loss_scaling": case.scale, "accum_type": case.accum}
    clip: dict[str, Any] = {} if np.isinf(case.clip) else {"max_grad_norm": case.clip}
    moments: dict[str, Any] = {
        "first_order_momentum_accum_type": case.first,
        "second_order_momentum_accum_type": case.second,
    }
    adam = common | moments | {"betas": BETAS, "eps": EPS}
    match case.rule:
        case "sgd":
            own: dict[str, Any] = {
                "momentum": MOMENTUM,
                "velocity_accum_type": case.first,
                "use_combined_accum": case.combined,
            }
            damped: dict[str, Any] = {"dampening": case.dampening} if case.dampening else {}
            if case.combined:
                own["velocity_scaling"] = case.velocity_scaling
            return poptorch.optim.SGD(parameters, **common, **own, **damped, **clip)
        case "adam":
            return poptorch.optim.Adam(parameters, **adam, **clip)
        case "adamw":
            return poptorch.optim.AdamW(parameters, **adam, **clip)
        case "plain_adamw":
            return poptorch.optim.AdamW(parameters, bias_correction=False, **adam, **clip)
        case "lamb":
            return poptorch.optim.LAMB(parameters, **adam)
        case "rmsprop":
            own = {"alpha": ALPHA, "eps": EPS, "momentum": MOMENTUM, "centered": True}
            return poptorch.optim.RMSprop(parameters, **common, **moments, **own)
    raise AssertionError(case.rule)


def trained(case: Case) -> tuple[Array, dict[str, Array]]:
    """The weight and the state after all steps, on the device."""
    options = poptorch.Options().deviceIterations(STEPS).replicationFactor(case.replicas)
    options.Training.gradientAccumulation(case.micro)
    if not case.mean:
        options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    if case.running is not None:
        strategy = poptorch.MeanReductionStrategy.Running if case.running else poptorch.MeanReductionStrategy.Post
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
    options.Abele.threads(1)
    model = Slope()
    rule = optimiser(case, model.parameters())
    training = poptorch.trainingModel(model, options, rule)
    training(torch.tensor(case.data.reshape(-1, SIZE)))
    state = {
        n.split("___")[0].replace("Accl", "Accl1") if case.combined else n.split("___")[0]: v.double().numpy()
        for n, v in rule.state_dict()["ipu_state"].items()
    }
    return model.weight.detach().double().numpy(), state


def assert_rounded_alike(got: Array, want: Array, kind: torch.dtype) -> None:
    """All but few elements have equal bits: what is computed in f32 falls on the other side of a half now and then."""
    if kind == SINGLE:
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-6 * np.abs(want).max())
        return
    step = np.spacing(np.abs(want).astype("f2")).astype("f8")
    assert (np.abs(got - want) <= 2 * step).all()
    assert (got == want).mean() > 0.99


def check(case: Case) -> None:
    weight, state = trained(case)
    expected = Reference(case).run()
    assert_rounded_alike(weight, expected.weight, HALF)
    kinds = {"Accl1": case.first, "Accl2": case.second, "Accl3": case.first}
    if case.rule == "rmsprop":
        kinds = {"Accl1": case.second, "Accl2": case.first, "Accl3": case.first}
    for name in kinds.keys() & state.keys():
        assert_rounded_alike(state[name], expected.state[name], kinds[name])


# Means that run over two micro-batches have no thirds, and sums over two replicas no order.
CASES = [
    Case("sgd", HALF, HALF, micro=2),
    Case("sgd", HALF, HALF, micro=3, replicas=2, running=False, dampening=0.25),
    Case("sgd", HALF, HALF, micro=4, combined=True, velocity_scaling=8.0),
    Case("sgd", micro=2, replicas=2, combined=True, dampening=0.25),
    Case("adam", HALF, HALF, HALF, micro=2, replicas=2, mean=False),
    Case("adamw", SINGLE, HALF, HALF, micro=3, clip=4.0),
    Case("lamb", HALF, HALF, SINGLE, micro=2, running=False),
    Case("rmsprop", HALF, HALF, HALF, micro=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_state__of_types__is_numpys(case: Case) -> None:
    check(case)


RULES = ("sgd", "adam", "adamw", "plain_adamw", "lamb", "rmsprop")
MATRIX = [
    *(Case(rule, accum, first, second) for rule in RULES for accum, first, second in [(SINGLE, HALF, HALF)]),
    *(Case(rule, accum, micro=micro) for rule in ("sgd", "adamw") for accum, micro in [(HALF, 2), (SINGLE, 4)]),
    *(Case("sgd", accum, HALF, micro=2, running=running) for accum in (HALF, SINGLE) for running in (True, False)),
    *(Case("adamw", accum, HALF, micro=2, replicas=2) for accum in (HALF, SINGLE)),
    *(Case(rule, HALF, HALF, micro=2, clip=5.0) for rule in ("sgd", "adam", "adamw")),
    *(Case(rule, HALF, HALF, HALF, scale=scale) for rule in ("adam", "lamb") for scale in (1.0, 64.0)),
    *(Case("sgd", t, t, micro=3, combined=True, replicas=replicas) for t in (HALF, SINGLE) for replicas in (1, 2)),
    *(Case("sgd", HALF, HALF, micro=2, combined=True, mean=mean, dampening=0.5) for mean in (True, False)),
    Case("sgd", HALF, HALF, micro=1, combined=True, velocity_scaling=4.0),
    Case("sgd", SINGLE, SINGLE, micro=2, combined=True, clip=3.0),
    Case("sgd", SINGLE, SINGLE, micro=2, combined=True, running=True),
    Case("adam", SINGLE, SINGLE, HALF, micro=2),
    Case("sgd", HALF, HALF, micro=2, replicas=2, clip=3.0),
    Case("adamw", HALF, HALF, HALF, replicas=2, running=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", sweeps.sampled(MATRIX, 12), ids=str)
def test_state__of_types_in_other_ways__is_numpys(case: Case) -> None:
    check(case)


# --- one tensor for momentum and sum ----------------------------------------------------------------------------------


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(self.head(torch.tanh(self.body(x))), y)


def fitted(
    steps: int = 3, options: poptorch.Options | None = None, **told: Any
) -> tuple[Regression, poptorch.optim.SGD, poptorch.PoplarExecutor]:
    """A model after some calls of two micro-batches, the learning rate and scale of the loss of which change."""
    model = Regression()
    rule = poptorch.optim.SGD(model.parameters(), lr=0.2, momentum=0.8, weight_decay=0.05, loss_scaling=4.0, **told)
    options = options or poptorch.Options()
    options.Training.gradientAccumulation(2)
    training = poptorch.trainingModel(model, options, rule)
    for step in range(steps):
        made = torch.Generator().manual_seed(step)
        training(torch.randn(6, 6, generator=made), torch.randn(6, 2, generator=made))
        rule.param_groups[0]["lr"] /= 2
        rule.param_groups[0]["momentum"] -= 0.1
        rule.loss_scaling *= 2
        training.setOptimizer(rule)
    return model, rule, training


def accumulators(training: poptorch.PoplarExecutor) -> list[str]:
    assert training._compiled is not None
    variables = training._compiled.session.executable.graph.variables
    return [v.name for v in variables if v.name.endswith("/accumulator")]


def test_combined__with_numbers_that_change__takes_the_steps_of_two_tensors_without_the_second() -> None:
    model, rule, training = fitted(use_combined_accum=True, velocity_scaling=16.0)
    twin, other, apart = fitted()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, twin.state_dict()[name], rtol=1e-5, atol=1e-6)
    momentum = rule.state_dict()["ipu_state"]["Accl___head.weight"] / 16
    torch.testing.assert_close(momentum, other.state_dict()["ipu_state"]["Accl1___head.weight"], rtol=1e-5, atol=1e-6)
    assert not accumulators(training)
    assert len(accumulators(apart)) == 4


APART: dict[str, tuple[dict[str, Any], Any]] = {
    "clipped": ({"max_grad_norm": 0.1}, lambda opts: None),
    "nesterov": ({"nesterov": True}, lambda opts: None),
    "running": (
        {},
        lambda opts: opts.Training.setMeanAccumulationAndReplicationReductionStrategy(
            poptorch.MeanReductionStrategy.Running
        ),
    ),
    "gradients_read": ({}, lambda opts: opts.anchorTensor("gradient", "Gradient___head.weight")),
}


@pytest.mark.parametrize("name", APART)
def test_combined__where_gradients_are_looked_at__keeps_sums_and_takes_the_same_steps(name: str) -> None:
    told, edit = APART[name]
    made = []
    for combined in (True, False):
        options = poptorch.Options()
        edit(options)
        made.append(fitted(2, options, use_combined_accum=combined, **told))
    (model, _, training), (twin, _, _) = made
    assert len(accumulators(training)) == 4
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, twin.state_dict()[key], rtol=1e-5, atol=1e-6)


def test_combined__with_an_automatic_scale__takes_the_steps_of_two_tensors() -> None:
    weights = []
    for combined in (True, False):
        torch.manual_seed(0)
        model = nn.Linear(6, 4).half()

        class WithLoss(nn.Module):
            def __init__(self, inner: nn.Module) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return poptorch.identity_loss(self.inner(x).float().square().mean(), reduction="none")

        options = poptorch.Options().deviceIterations(4)
        options.Training.gradientAccumulation(2).setAutomaticLossScaling(True)
        rule = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, use_combined_accum=combined)
        training = poptorch.trainingModel(WithLoss(model), options, rule)
        training(torch.randn(16, 6, generator=torch.Generator().manual_seed(1)).half())
        assert rule.state_dict()["ipu_state"]["lossScaleUpdateFactor_FLOAT"] == 16.0
        weights.append(model.weight.detach().float())
    torch.testing.assert_close(weights[0], weights[1], rtol=2e-3, atol=1e-3)


def test_combined__of_one_type_by_either_name__has_it() -> None:
    for name in ("accum_type", "velocity_accum_type"):
        told: dict[str, Any] = {name: HALF}
        _, rule, _ = fitted(1, use_combined_accum=True, **told)
        assert rule.state_dict()["ipu_state"]["Accl___head.weight"].dtype == HALF


def test_combined__state__is_saved_and_goes_on() -> None:
    model, rule, whole = fitted(2, use_combined_accum=True)
    saved, twin = copy.deepcopy(rule.state_dict()), Regression()
    twin.load_state_dict(model.state_dict())
    resumed = poptorch.optim.SGD(
        twin.parameters(), lr=0.05, momentum=0.6, weight_decay=0.05, loss_scaling=16.0, use_combined_accum=True
    )
    resumed.load_state_dict(saved)
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    training = poptorch.trainingModel(twin, options, resumed)
    made = torch.Generator().manual_seed(2)
    batch = torch.randn(6, 6, generator=made), torch.randn(6, 2, generator=made)
    for each in (whole, training):
        each(*batch)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, twin.state_dict()[key], rtol=1e-6, atol=1e-7)


# --- scaled state -----------------------------------------------------------------------------------------------------


def test_second_moment__in_float16_of_small_gradients__is_kept_by_its_scale() -> None:
    """g = 2⁻¹⁴: its square is no float16, but with the scale of the loss squared it is."""

    class Small(Slope):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * 2.0**-14)

    kept = []
    for scale in (1.0, 4096.0):
        model = Small()
        rule = optimiser(replace(Case("adam", first=HALF, second=HALF), scale=scale), model.parameters())
        rule.param_groups[0]["weight_decay"] = 0.0
        training = poptorch.trainingModel(model, poptorch.Options(), rule)
        training(torch.ones(1, SIZE))
        kept.append(rule.state_dict()["ipu_state"]["Accl2___weight"].double())
    assert not kept[0].any()
    torch.testing.assert_close(kept[1], torch.full((SIZE,), 2.0**-28 / 32 * 4096.0**2, dtype=torch.float64))
