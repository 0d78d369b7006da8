"""Optimisers: what is variable, what is refused, and how either kind is read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from abele import poptorch
from abele.frontends.poptorch.training.optimizer_checks import KNOWN
from abele.frontends.poptorch.training.rules import read_optimiser, read_rules
from abele.network import Adam, NetworkBuilder, Sgd


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))]


def test_variable_attributes__given_ones__are_variable() -> None:
    optimiser = poptorch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
    attributes = optimiser.variable_attrs
    assert attributes._variable_attributes == ["lr", "momentum"]
    assert not attributes.isConstant("momentum")
    assert attributes.isConstant("weight_decay")
    attributes.markAsConstant("momentum")
    attributes.markAsVariable("weight_decay")
    (rule,) = read_rules(optimiser)
    assert rule.variable == {"lr", "weight_decay"}


def test_variable_attributes__unknown_one__is_refused() -> None:
    with pytest.raises(AssertionError, match="Unknown attribute rate, allowed values: "):
        poptorch.optim.SGD(parameters()).variable_attrs.markAsConstant("rate")


def test_read__torch_optimisers__keep_their_numbers() -> None:
    (sgd,) = read_rules(torch.optim.SGD(parameters(), lr=0.2, momentum=0.5, nesterov=True))
    assert sgd == Sgd(lr=0.2, momentum=0.5, nesterov=True)
    (adam,) = read_rules(torch.optim.AdamW(parameters(), lr=0.2, betas=(0.8, 0.9), weight_decay=0.3))
    assert adam == Adam(lr=0.2, beta1=0.8, beta2=0.9, weight_decay=0.3, decoupled=True)


def test_read__betas_of_poptorch__are_two_variables() -> None:
    (rule,) = read_rules(poptorch.optim.AdamW(parameters(), lr=0.1, betas=(0.8, 0.9), bias_correction=False))
    assert rule.variable == {"lr", "beta1", "beta2"}
    assert isinstance(rule, Adam)
    assert not rule.bias_correction


def test_read__groups__keep_their_parameters() -> None:
    first, second = parameters()
    net = NetworkBuilder()
    values = {id(first): net.parameter((2,), "f32", "first")}
    groups = read_optimiser(torch.optim.SGD([{"params": [first]}, {"params": [second], "lr": 0.5}], lr=0.1), values)
    assert [len(g.parameters) for g in groups] == [1, 0]
    assert [g.optimiser.numbers["lr"] for g in groups] == [0.1, 0.5]


def test_poptorch_optimisers__subclass_the_torch_ones() -> None:
    assert poptorch.optim.Adam.__bases__ == (poptorch.optim.Optimizer, torch.optim.Adam)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "amsgrad": (lambda: poptorch.optim.Adam(parameters(), amsgrad=True), "Only non-amsgrad Adam/AdamW"),
    "torch_amsgrad": (lambda: read_rules(torch.optim.Adam(parameters(), amsgrad=True)), "Only non-amsgrad"),
    "empty_state": (
        lambda: poptorch.optim.SGD(parameters()).load_state_dict(poptorch.optim.SGD(parameters()).state_dict()),
        "Cannot load optimizer state dictionary because it is empty.",
    ),
    "state_of_the_host": (
        lambda: poptorch.optim.SGD(parameters()).load_state_dict(torch.optim.SGD(parameters()).state_dict()),
        "Only IPU optimizer states can be loaded onto the IPU.",
    ),
    "kind": (lambda: read_rules(torch.optim.Rprop(parameters())), "Unsupported optimizer type Rprop"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_optimiser__that_cannot_be_run__is_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises((ValueError, poptorch.Error), match=text):
        make()


@pytest.mark.parametrize("name", ["accum_type", "velocity_accum_type"])
def test_accumulation_types__other_than_floats_of_16_or_32_bits__are_refused(name: str) -> None:
    with pytest.raises(AssertionError, match=f"{name} must be one of torch.float16 or torch.float32"):
        poptorch.optim.SGD(parameters(), **{name: torch.float64})


def test_loss_scaling__that_is_none__is_one() -> None:
    (rule,) = read_rules(poptorch.optim.AdamW(parameters(), loss_scaling=None))
    assert rule.loss_scaling == 1


def test_optimisers__each__have_pytorch_s_class_second() -> None:
    names = {kind.__name__: kind.__bases__[1] for kind in KNOWN if kind.__module__.startswith("abele")}
    own = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW, "RMSprop": torch.optim.RMSprop}
    assert names == {**own, "LAMB": torch.optim.Optimizer, "LARS": torch.optim.Optimizer}


# --- trained models ---------------------------------------------------------------------------------------------------


class Regression(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(3, 4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.head(torch.tanh(self.body(x))), y)


def batch(samples: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(samples)
    return torch.randn(samples, 3, generator=made), torch.randn(samples, 2, generator=made)


def seeded() -> Regression:
    torch.manual_seed(5)
    return Regression()


def eager(optimiser: torch.optim.Optimizer, model: Regression, steps: int) -> None:
    for _ in range(steps):
        optimiser.zero_grad()
        model(*batch()).backward()
        optimiser.step()


def on_device(model: Regression, optimiser: torch.optim.Optimizer, options: Any = None) -> poptorch.PoplarExecutor:
    return poptorch.trainingModel(model, options or poptorch.Options(), optimizer=optimiser)


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module, tolerance: float = 2e-6) -> None:
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


TRAINED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sgd": (
        lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.01, loss_scaling=128.0),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    ),
    "combined": (
        lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, use_combined_accum=True, velocity_scaling=64.0),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ),
    "adamw": (
        lambda p: poptorch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, loss_scaling=1000.0),
        lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.9), weight_decay=0.1),
    ),
    "rmsprop": (
        lambda p: poptorch.optim.RMSprop(p, lr=0.01, alpha=0.9, centered=True, momentum=0.5),
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, centered=True, momentum=0.5),
    ),
    "torch_nadam": (lambda p: torch.optim.NAdam(p, lr=0.01), lambda p: torch.optim.NAdam(p, lr=0.01)),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training__several_steps__takes_pytorch_s(name: str) -> None:
    make, reference = TRAINED[name]
    model, twin = seeded(), seeded()
    on_device(model, make(model.parameters()), poptorch.Options().deviceIterations(3))(
        *(t.repeat(3, 1) for t in batch())
    )
    eager(reference(twin.parameters()), twin, 3)
    assert_same_weights(model, twin)


def test_training__groups_with_a_frozen_layer__leave_it() -> None:
    model, twin = seeded(), seeded()
    for each in (model, twin):
        each.body.weight.requires_grad = False
    groups = [{"params": model.body.parameters(), "lr": 0.5}, {"params": model.head.parameters(), "weight_decay": 0.1}]
    twins = [{"params": twin.body.parameters(), "lr": 0.5}, {"params": twin.head.parameters(), "weight_decay": 0.1}]
    training = on_device(model, poptorch.optim.AdamW(groups, lr=0.1))
    eager(torch.optim.AdamW(twins, lr=0.1), twin, 2)
    for _ in range(2):
        training(*batch())
    assert_same_weights(model, twin)


def test_set_optimizer__by_a_scheduler__changes_the_rate_of_the_next_run() -> None:
    model, twin = seeded(), seeded()
    mine, theirs = (poptorch.optim.SGD(model.parameters(), lr=0.5), torch.optim.SGD(twin.parameters(), lr=0.5))
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(each, 0.1) for each in (mine, theirs)]
    training = on_device(model, mine)
    for _ in range(3):
        training(*batch())
        eager(theirs, twin, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch does not see the steps of the device.
            for scheduler in schedulers:
                scheduler.step()
            training.setOptimizer(mine)
    assert_same_weights(model, twin)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_one_cycle__of_pytorch_s_optimiser__moves_the_momentum_too(kind: str) -> None:
    own: dict[str, Any] = {"momentum": 0.9} if kind == "SGD" else {"eps": 0.1}
    model, twin = seeded(), seeded()
    mine, theirs = (getattr(torch.optim, kind)(each.parameters(), lr=0.1, **own) for each in (model, twin))
    schedulers = [torch.optim.lr_scheduler.OneCycleLR(each, 0.5, total_steps=6) for each in (mine, theirs)]
    training = on_device(model, mine)
    for _ in range(4):
        training(*batch())
        eager(theirs, twin, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for scheduler in schedulers:
                scheduler.step()
            training.setOptimizer(mine)
    group = mine.param_groups[0]
    assert (group["momentum"] if kind == "SGD" else group["betas"][0]) != 0.9
    assert_same_weights(model, twin, 1e-5)


def test_max_grad_norm__of_poptorch__clips_as_pytorch() -> None:
    model, twin = seeded(), seeded()
    on_device(model, poptorch.optim.Adam(model.parameters(), lr=0.1, eps=0.1, max_grad_norm=0.05))(*batch())
    optimiser = torch.optim.Adam(twin.parameters(), lr=0.1, eps=0.1)
    twin(*batch()).backward()
    torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.05)
    optimiser.step()
    assert_same_weights(model, twin, 1e-5)


def test_accum_type__half__keeps_a_running_mean_in_half() -> None:
    model, twin = seeded(), seeded()
    options = poptorch.Options()
    options.Training.gradientAccumulation(4)
    optimiser = poptorch.optim.SGD(model.parameters(), lr=0.1, accum_type=torch.float16)
    training = on_device(model, optimiser, options)
    strategy = training.options.Training.meanAccumulationAndReplicationReductionStrategy
    assert strategy == poptorch.MeanReductionStrategy.Running
    training(*batch(16))
    loss = twin(*batch(16))
    loss.backward()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    assert_same_weights(model, twin, 2e-4)
    types = {v.name: v.dtype.name for v in training._compiled.session.executable.graph.variables}
    assert types["body.weight/accumulator"] == "f16"


# --- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "LAMB", "LARS"])
def test_state_dict__loaded_into_another_model__goes_on_with_the_same_bits(name: str) -> None:
    def made(model: Regression) -> Any:
        extra = {"momentum": 0.9} if name in ("SGD", "RMSprop", "LARS") else {"betas": (0.8, 0.9)}
        return getattr(poptorch.optim, name)(model.parameters(), lr=0.05, **extra)

    model = seeded()
    optimiser = made(model)
    before = optimiser.state_dict()
    assert before["ipu_state"] is None
    assert before["ipu_param"] is None
    training = on_device(model, optimiser)
    for _ in range(2):
        training(*batch())
    saved, weights = optimiser.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
    assert {"Accl1___body.weight"} <= saved["ipu_state"].keys()
    if name in ("Adam", "AdamW", "LAMB"):
        parameters = dict(model.named_parameters())
        assert saved["ipu_state"].keys() == {f"{slot}___{p}" for slot in ("Accl1", "Accl2", "Step") for p in parameters}
    assert saved["ipu_param"]["learningRate___specific___head.bias"] == pytest.approx(0.05)
    other = seeded()
    other.load_state_dict(weights)
    resumed = made(other)
    resumed.load_state_dict(saved)
    again = on_device(other, resumed)
    for each in (training, again):
        each(*batch())
    for key, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key
    after = resumed.state_dict()["ipu_state"]
    assert all(torch.equal(value, after[key]) for key, value in optimiser.state_dict()["ipu_state"].items())


OPTIMISERS: dict[str, Any] = {
    "sgd": lambda p: poptorch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, loss_scaling=4.0),
    "combined": lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, use_combined_accum=True, velocity_scaling=2.0),
    "adam": lambda p: poptorch.optim.Adam(p, lr=0.1, loss_scaling=8.0, first_order_momentum_accum_type=torch.float16),
    "adamw": lambda p: poptorch.optim.AdamW(p, lr=0.1, bias_correction=False),
    "rmsprop": lambda p: poptorch.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.5),
    "lamb": lambda p: poptorch.optim.LAMB(p, lr=0.1),
}


def _set_of(state: dict[str, Any]) -> dict[str, tuple[torch.dtype, Any]]:
    both = {**state["ipu_state"], **state["ipu_param"]}
    return {name: (tensor.dtype, tensor.tolist()) for name, tensor in both.items()}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in ("sgd", "adamw", "lamb"))) for n in OPTIMISERS]
)
def test_state_dict__of_any_values_after_it_was_loaded__is_the_same_until_a_run(name: str) -> None:
    model, other = seeded(), seeded()
    optimiser = OPTIMISERS[name](model.parameters())
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    training = on_device(model, optimiser, options)
    training(*batch(8))
    saved = optimiser.state_dict()
    assert all(tensor.is_floating_point() for tensor in saved["ipu_state"].values())
    generator = torch.Generator().manual_seed(2)
    for key, tensor in saved["ipu_state"].items():
        saved["ipu_state"][key] = torch.rand(tensor.shape, generator=generator).to(tensor.dtype)
    optimiser.load_state_dict(saved)
    assert _set_of(optimiser.state_dict()) == _set_of(saved)
    fresh = OPTIMISERS[name](other.parameters())
    if not fresh.variable_attrs.isConstant("loss_scaling"):
        fresh.loss_scaling = 2.0
    fresh.load_state_dict(saved)
    assert _set_of(fresh.state_dict()) == _set_of(saved)
    resumed = on_device(other, fresh, options)
    resumed.compile(*batch(8))
    assert _set_of(fresh.state_dict()) == _set_of(saved)
    resumed(*batch(8))
    after = fresh.state_dict()
    assert after["ipu_param"]["lossScaling_FLOAT"] == saved["ipu_param"]["lossScaling_FLOAT"]
    if saved["ipu_state"]:
        assert _set_of(after) != _set_of(saved)


def test_state_dict__of_a_model_off_the_device__is_what_training_begins_with() -> None:
    model = seeded()
    optimiser = poptorch.optim.Adam(model.parameters(), lr=0.1)
    options = poptorch.Options().connectionType(poptorch.ConnectionType.OnDemand)
    on_device(model, optimiser, options).compile(*batch())
    state = optimiser.state_dict()["ipu_state"]
    assert len(state) == 12
    assert not any(tensor.any() for tensor in state.values())


def test_state_dict__loaded_while_attached__is_on_the_device_at_once() -> None:
    model = seeded()
    optimiser = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    training = on_device(model, optimiser)
    training(*batch())
    first = optimiser.state_dict()
    training(*batch())
    second = optimiser.state_dict()["ipu_state"]["Accl1___head.weight"]
    assert not torch.equal(first["ipu_state"]["Accl1___head.weight"], second)
    optimiser.load_state_dict(first)
    now = optimiser.state_dict()["ipu_state"]["Accl1___head.weight"]
    assert torch.equal(first["ipu_state"]["Accl1___head.weight"], now)


def test_state_dict__of_plain_sgd__says_the_numbers_that_popart_uses() -> None:
    model = seeded()
    optimiser = poptorch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.25, loss_scaling=2.0)
    on_device(model, optimiser).compile(*batch())
    numbers = optimiser.state_dict()["ipu_param"]
    assert numbers["scaledLearningRate0___specific___body.weight"] == 0.25
    assert numbers["weightDecayScaleFactor0___specific___body.weight"] == 0.875
    assert numbers["lossScaling_FLOAT"] == 2


# --- loss scaling -----------------------------------------------------------------------------------------------------


def test_automatic_loss_scaling__of_a_half_model__can_be_looked_at() -> None:
    model = seeded().half()
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)
    optimiser = poptorch.optim.SGD(model.parameters(), lr=0.01, loss_scaling=4.0)
    training = on_device(model, optimiser, options)
    for step in range(3):
        training(*(t.half() for t in batch()))
        state = optimiser.state_dict()
        assert state["ipu_state"]["lossScaleUpdateFactor_FLOAT"] == 2.0 ** (step + 1)
        assert state["ipu_param"]["lossScaling_FLOAT"] == 4 * 2.0 ** (step + 1)


# --- warnings ---------------------------------------------------------------------------------------------------------


def test_optimizer__of_the_users_own_class__warns() -> None:
    class Mine(torch.optim.SGD):
        pass

    model = seeded()
    with pytest.warns(UserWarning, match="Optimizer `Mine` subclassed from classes in poptorch.optim or torch.optim"):
        on_device(model, Mine(model.parameters(), lr=0.1))


def test_set_optimizer__with_unknown_attributes__warns_once_of_each() -> None:
    model = seeded()
    optimiser = poptorch.optim.SGD(model.parameters(), lr=0.1)
    training = on_device(model, optimiser)
    optimiser.tau = 1.0
    optimiser.param_groups[0]["sigma"] = 1.0
    optimiser.defaults["rho"] = 1.0
    with pytest.warns(UserWarning, match="Ignoring unexpected") as caught:
        training.setOptimizer(optimiser)
    training.setOptimizer(optimiser)
    assert [str(w.message) for w in caught] == [
        "Ignoring unexpected optimizer attribute in SGD2 optimizer: ['tau']",
        "Ignoring unexpected default group variable in SGD2 optimizer: ['rho']",
        "Ignoring unexpected group 0 attribute in SGD2 optimizer: ['sigma']",
    ]


def test_warnings__of_the_same_optimizer_in_another_wrapper__are_given_again() -> None:
    class Own(poptorch.optim.Adam):
        pass

    for _ in range(2):
        model = seeded()
        optimiser = Own(model.parameters(), lr=0.1)
        optimiser.step = 0
        with pytest.warns(UserWarning, match=r"subclassed|unexpected") as caught:
            on_device(model, optimiser)
        assert [str(w.message)[:50] for w in caught] == [
            "Optimizer `Own` subclassed from classes in poptorch.optim"[:50],
            "Ignoring unexpected optimizer attribute in Adam optimizer: ['step']"[:50],
        ]


def test_reduction_strategy__of_a_wrapper__follows_its_own_optimizer_unless_chosen() -> None:
    def strategy(options: poptorch.Options, **types: Any) -> poptorch.MeanReductionStrategy:
        model = seeded()
        wrapped = on_device(model, poptorch.optim.SGD(model.parameters(), lr=0.1, **types), options)
        return wrapped.options.Training.meanAccumulationAndReplicationReductionStrategy

    running, post = poptorch.MeanReductionStrategy.Running, poptorch.MeanReductionStrategy.Post
    half = {"accum_type": torch.float16}
    assert strategy(poptorch.Options()) == post
    assert strategy(poptorch.Options(), **half) == running
    assert strategy(poptorch.Options(), **half, use_combined_accum=True) == post
    model = seeded()
    first = on_device(model, poptorch.optim.SGD(model.parameters(), lr=0.1, **half))
    assert strategy(first.options) == post
    chosen = poptorch.Options()
    chosen.Training.setMeanAccumulationAndReplicationReductionStrategy(post)
    assert strategy(chosen, **half) == post


def test_velocity_scaling__without_combined_accumulators__warns() -> None:
    with pytest.warns(UserWarning, match="velocity_scaling"):
        poptorch.optim.SGD(parameters(), lr=0.1, velocity_scaling=2.0)
