"""Wrapped models from end to end: training, batching, outputs, devices, weights, errors."""

from __future__ import annotations

import copy
import datetime
import gc
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from poptorch_kit import Classifier
from torch import nn

from abele import poptorch

X, LABELS = torch.randn(24, 12, generator=torch.Generator().manual_seed(1)), torch.arange(24) % 4


def options(iterations: int = 1, accumulation: int = 1, mode: str = "native") -> poptorch.Options:
    opts = poptorch.Options().deviceIterations(iterations).showCompilationProgressBar(False).randomSeed(3)
    opts.Training.gradientAccumulation(accumulation)
    opts.Abele.mode(mode)
    return opts


def classifier(**settings: Any) -> Classifier:
    torch.manual_seed(0)
    return Classifier(**settings)


def eager_losses(model: nn.Module, optimiser: torch.optim.Optimizer, iterations: int, accumulation: int) -> list[float]:
    """Losses of one epoch over the data in eager PyTorch, weights updated after each accumulation."""
    size = len(X) // (iterations * accumulation)
    losses = []
    for iteration in range(iterations):
        optimiser.zero_grad()
        for step in range(accumulation):
            begin = (iteration * accumulation + step) * size
            _, loss = model(X[begin : begin + size], LABELS[begin : begin + size])
            (loss / accumulation).backward()
            losses.append(loss.item())
        optimiser.step()
    return losses


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (torch.optim.Adam, "native"),
        (torch.optim.SGD, "tiles"),
        (poptorch.optim.AdamW, "native"),
        pytest.param(torch.optim.Adam, "tiles", marks=pytest.mark.slow),
        pytest.param(torch.optim.SGD, "native", marks=pytest.mark.slow),
        pytest.param(poptorch.optim.AdamW, "tiles", marks=pytest.mark.slow),
    ],
)
def test_training__iterations_and_accumulation__equal_eager_pytorch(mode: str, make: Any) -> None:
    model = classifier()
    eager = copy.deepcopy(model)
    opts = options(2, 3, mode).outputMode(poptorch.OutputMode.All)
    training = poptorch.trainingModel(model, opts, make(model.parameters(), lr=0.05))
    eager_make = torch.optim.AdamW if make is poptorch.optim.AdamW else make
    optimiser = eager_make(eager.parameters(), lr=0.05)
    for _ in range(3):
        scores, losses = training(X, LABELS)
        assert scores.shape == (24, 4)
        torch.testing.assert_close(losses, torch.tensor(eager_losses(eager, optimiser, 2, 3)), rtol=2e-5, atol=2e-6)
    for got, expected in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got.detach(), expected.detach(), rtol=2e-5, atol=2e-6)


def test_training__dropout_with_a_fixed_seed__gives_the_same_bits_for_any_threads() -> None:
    def run(seed: int, threads: int) -> bytes:
        model = classifier(dropout=0.5)
        opts = options(3, 2).randomSeed(seed)
        opts.Abele.threads(threads)
        training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(2):
            training(X, LABELS)
        return b"".join(p.detach().numpy().tobytes() for p in model.parameters())

    first = run(5, 1)
    assert run(5, 2) == first
    assert run(6, 1) != first


def test_training__frozen_parameters__stay() -> None:
    model = classifier()
    model.first.weight.requires_grad_(False)
    before = model.first.weight.detach().clone()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    training(X, LABELS)
    assert torch.equal(model.first.weight, before)
    assert model.last.weight.detach().sum() != 0


def test_training__batch_norm__updates_the_models_buffers() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(12)
            self.body = classifier()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
            return self.body(self.norm(x), labels)

    model = Normed()
    eager = copy.deepcopy(model)
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.1))
    training(X, LABELS)
    eager_losses(eager, torch.optim.SGD(eager.parameters(), lr=0.1), 1, 1)
    for (name, got), (_, expected) in zip(model.named_buffers(), eager.named_buffers(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6, msg=name)


def test_training__without_optimizer__descends() -> None:
    training = poptorch.trainingModel(classifier(), options())
    first, second = (training(X, LABELS)[1] for _ in range(2))
    assert second < first


def test_set_optimizer__new_rate__takes_effect_without_compiling() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.1))
    training(X, LABELS)
    before = [p.detach().clone() for p in model.parameters()]
    training.setOptimizer(torch.optim.SGD(model.parameters(), lr=0.0))
    training(X, LABELS)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_set_optimizer__constant_that_changed__is_refused() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    training.compile(X, LABELS)
    with pytest.raises(poptorch.Error, match=r"momentum was compiled as the constant 0\.9"):
        training.setOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5))


def test_training__other_optimisers__are_refused() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.Rprop(model.parameters()))
    with pytest.raises(poptorch.Error, match="Unsupported optimizer type Rprop"):
        training.compile(X, LABELS)


# --- batches and outputs ----------------------------------------------------------------------------------------------


class Scale(nn.Module):
    """A per-micro-batch sum and the values themselves."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.sum()


BATCH = torch.arange(6.0).reshape(6, 1)
MODES = {
    poptorch.OutputMode.All: (BATCH * 2, BATCH[:, 0]),
    poptorch.OutputMode.Final: (BATCH[5:] * 2, BATCH[5, 0]),
    poptorch.OutputMode.EveryN: (BATCH[2::3] * 2, BATCH[2::3, 0]),
    poptorch.OutputMode.Sum: (BATCH.sum(0, keepdim=True) * 2, BATCH.sum()),
    poptorch.OutputMode.Default: (BATCH * 2, BATCH[:, 0]),
}


@pytest.mark.parametrize("mode", MODES)
def test_outputs__every_mode__returns_what_it_says(mode: poptorch.OutputMode) -> None:
    period = 3 if mode == poptorch.OutputMode.EveryN else None
    model = poptorch.inferenceModel(Scale(), options(6).outputMode(mode, period))
    for _ in range(2):
        for got, expected in zip(model(BATCH), MODES[mode], strict=True):
            torch.testing.assert_close(got, expected)


def test_outputs__training_by_default__are_those_of_the_last_micro_batch() -> None:
    model = classifier()
    scores, loss = poptorch.trainingModel(model, options(2, 3))(X, LABELS)
    assert scores.shape == (4, 4)
    assert loss.shape == ()


def test_outputs__single_micro_batch__keeps_scalars_scalar() -> None:
    _, total = poptorch.inferenceModel(Scale(), options())(BATCH)
    assert total.shape == ()


def test_outputs__integers__come_back_as_int32() -> None:
    got = poptorch.inferenceModel(lambda x: x + 1, options())(torch.arange(4))
    assert got.dtype == torch.int32
    assert got.tolist() == [1, 2, 3, 4]


def test_outputs__nested__keep_their_structure() -> None:
    def nested(x: torch.Tensor, y: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {"sum": (x + y["a"], None), "three": 3}

    got = poptorch.inferenceModel(nested, options())(BATCH, {"a": BATCH})
    assert torch.equal(got["sum"][0], BATCH * 2)
    assert (got["sum"][1], got["three"]) == (None, 3)


def test_outputs__backward__explains_itself() -> None:
    got = poptorch.inferenceModel(lambda x: x + 1, options())(BATCH)
    with pytest.raises(poptorch.Error, match=r"backward\(\) cannot be called explicitly on outputs"):
        got.backward()


def test_batch__that_does_not_divide__is_refused_with_the_rule() -> None:
    model = poptorch.trainingModel(classifier(), options(2, 5))
    with pytest.raises(AssertionError) as caught:
        model(X, LABELS)
    text = str(caught.value)
    assert "Invalid batch dimension: In the input torch.Size([24, 12]), the batch dimension (24)" in text
    assert "Options.deviceIterations(2)" in text
    assert "Options.Training.gradientAccumulation(5) = 10" in text


def test_model__sees_only_the_micro_batch() -> None:
    seen = []

    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((tuple(x.shape), poptorch.isRunningOnIpu()))
            return x + 1

    model = poptorch.inferenceModel(Looks(), options(3))
    model(BATCH)
    model(BATCH)
    assert seen == [((2, 1), True)]
    assert not poptorch.isRunningOnIpu()


@pytest.mark.parametrize(
    "strategy", [poptorch.PipelinedExecution(), poptorch.ShardedExecution()], ids=["pipe", "shard"]
)
def test_inference__accumulation__is_refused_where_the_model_is_wrapped(strategy: Any) -> None:
    model = poptorch.BeginBlock(Scale(), "a", ipu_id=1)
    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(model, options(1, 2).setExecutionStrategy(strategy))
    said = (
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) when "
        "running a poptorch.inferenceModel()."
    )
    if isinstance(strategy, poptorch.PipelinedExecution):
        said += (
            " Use poptorch.Options().deviceIterations to process a sufficient number of batches each run for pipelined "
            "execution instead."
        )
    assert caught.value.message == said


def test_call__another_shape_later__is_refused() -> None:
    model = poptorch.inferenceModel(Scale(), options())
    model(BATCH)
    with pytest.raises(poptorch.Error, match="Shape mismatch for x"):
        model(BATCH[:3])


def test_call__failed_compile__leaves_model_and_wrapper_usable() -> None:
    class Fragile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(12, 4)
            self.broken = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.fft(x).real if self.broken else self.fc(x)

    model = Fragile()
    wrapped = poptorch.inferenceModel(model, options())
    with pytest.raises(Exception, match="has no lowering"):
        wrapped(X)
    model.broken = False
    torch.testing.assert_close(wrapped(X), model(X).detach(), rtol=1e-5, atol=1e-6)
    assert model.training


@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_modes__convolution_flattened_into_a_linear_layer__equal_pytorch(mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 6), nn.LogSoftmax(1))
    x = torch.randn(4, 4, 5, 5)
    got = poptorch.inferenceModel(model, options(mode=mode))(x)
    torch.testing.assert_close(got, model(x).detach(), rtol=1e-5, atol=1e-6)


# --- weights and devices ----------------------------------------------------------------------------------------------


Trained = tuple[Classifier, Any]


@pytest.fixture(scope="module")
def compiled() -> Trained:
    """A model that several tests train further, and its wrapper; each sees what one call more does."""
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    training.compile(X, LABELS)
    return model, training


def test_weights__after_training__are_copied_back_when_looked_at(compiled: Trained) -> None:
    model, training = compiled
    before = model.first.weight.detach().clone()
    training(X, LABELS)
    assert not torch.equal(model.first.weight, before)
    assert not training.copyWeightsToHostIfNeeded()


@pytest.mark.parametrize(
    "made",
    [
        torch.optim.SGD,
        torch.optim.AdamW,
        poptorch.optim.LAMB,
        pytest.param(poptorch.optim.AdamW, marks=pytest.mark.slow),
    ],
)
def test_weights__new_optimiser_after_each_step__stay_on_the_device(made: Callable[..., torch.optim.Optimizer]) -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), made(model.parameters(), lr=0.5))
    training(X, LABELS)
    training.setOptimizer(made(model.parameters(), lr=0.25))
    assert training.copyWeightsToHostIfNeeded()


def test_weights__asked_for_shape_or_kind__stay_on_the_device(compiled: Trained) -> None:
    model, training = compiled
    training(X, LABELS)
    weight = model.first.weight
    assert (tuple(weight.shape), weight.size(0), weight.dim()) == ((*weight.size(),), weight.shape[0], weight.ndim)
    assert all([weight.is_leaf, weight.requires_grad, weight.is_floating_point(), not torch.is_complex(weight)])
    assert (weight.dtype, weight.device.type, weight.numel()) == (torch.float32, "cpu", weight.shape.numel())
    assert training.copyWeightsToHostIfNeeded()


@pytest.mark.parametrize(
    "look",
    [
        lambda w: w.data,
        lambda w: w.detach(),
        lambda w: w.numpy(force=True),
        lambda w: w.data_ptr(),
        lambda w: w.flatten(),
        lambda w: w.tolist(),
        lambda w: torch.save(w, io.BytesIO()),
    ],
)
def test_weights__anything_that_shows_values__is_up_to_date(
    look: Callable[[torch.Tensor], object], compiled: Trained
) -> None:
    model, training = compiled
    before = model.first.weight.detach().clone()
    training(X, LABELS)
    look(model.first.weight)
    with torch._C.DisableTorchFunctionSubclass():
        seen = torch.Tensor.detach(model.first.weight).clone()
    assert not torch.equal(seen, before)
    training.copyWeightsToHost()
    torch.testing.assert_close(model.first.weight.detach(), seen, rtol=0, atol=0)


def test_weights__shared_with_inference__are_refreshed_before_each_call() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    inference = poptorch.inferenceModel(model, options())
    for _ in range(3):
        training(X, LABELS)
        torch.testing.assert_close(inference(X), copy.deepcopy(model)(X).detach(), rtol=1e-5, atol=1e-5)


def test_weights__changed_on_the_host__are_seen_after_copying() -> None:
    model = classifier()
    inference = poptorch.inferenceModel(model, options())
    before = inference(X)
    with torch.no_grad():
        model.last.bias += 1
    torch.testing.assert_close(inference(X), before)
    inference.copyWeightsToDevice()
    torch.testing.assert_close(inference(X), before + 1)


def test_load_state_dict__on_the_wrapper__reaches_the_device() -> None:
    model, other = classifier(), Classifier()
    inference = poptorch.inferenceModel(model, options())
    inference(X)
    inference.load_state_dict(other.state_dict())
    torch.testing.assert_close(inference(X), other(X).detach(), rtol=1e-5, atol=1e-5)


def test_save_and_load__weights__come_back(tmp_path: Path) -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.5))
    training(X, LABELS)
    training.save(tmp_path / "sub" / "weights.pt")
    other = poptorch.inferenceModel(Classifier(), options())
    other.load(tmp_path / "sub" / "weights.pt")
    torch.testing.assert_close(other(X), copy.deepcopy(model)(X).detach(), rtol=1e-5, atol=1e-5)


def test_detach__and_call_again__goes_on_where_it_was() -> None:
    model = classifier()
    eager = copy.deepcopy(model)
    training = poptorch.trainingModel(model, options(), torch.optim.Adam(model.parameters(), lr=0.05))
    optimiser = torch.optim.Adam(eager.parameters(), lr=0.05)
    training(X, LABELS)
    training.detachFromDevice()
    assert not training.isAttachedToDevice()
    _, loss = training(X, LABELS)
    expected = [eager_losses(eager, optimiser, 1, 1) for _ in range(2)]
    torch.testing.assert_close(loss, torch.tensor(expected[1][0]), rtol=1e-5, atol=1e-6)


def test_destroy__model__is_plain_again_and_compiles_anew() -> None:
    model = classifier()
    training = poptorch.trainingModel(model, options())
    training(X, LABELS)
    with pytest.raises(RuntimeError, match=r"Model has already been wrapped in 'poptorch\.trainingModel'"):
        poptorch.trainingModel(model, options())
    training.destroy()
    assert type(model.first.weight) is nn.Parameter
    assert not training.isCompiled()
    poptorch.trainingModel(model, options())(X, LABELS)


def test_compile__with_attaching__pauses_pythons_collector_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, on = poptorch.inferenceModel(Scale(), options()), list[bool]()
    attach = type(model).attachToDevice

    def attached(self: Any) -> None:
        on.append(gc.isenabled())
        attach(self)

    monkeypatch.setattr(type(model), "attachToDevice", attached)
    model.compile(BATCH)
    assert (on, gc.isenabled()) == ([False], True)


def test_device__states_that_do_not_fit__are_refused() -> None:
    model = poptorch.inferenceModel(Scale(), options())
    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed"):
        model.attachToDevice()
    model.compile(BATCH)
    with pytest.raises(poptorch.Error, match="Device is already attached"):
        model.attachToDevice()
    model.detachFromDevice()
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        model.detachFromDevice()


def test_offline__compiles_and_reports_but_does_not_run() -> None:
    model = poptorch.inferenceModel(Scale(), options().useOfflineIpuTarget())
    with pytest.raises(AssertionError, match=r"use model\.compile"):
        model(BATCH)
    model.compile(BATCH)
    assert model.report().total_cycles > 0
    with pytest.raises(poptorch.Error, match="Trying to attach to an offline device"):
        model.attachToDevice()


# --- what is known ----------------------------------------------------------------------------------------------------


def test_report__says_what_was_run() -> None:
    training = poptorch.trainingModel(classifier(), options(2, 3).modelName("small"))
    training(X, LABELS)
    report = training.report()
    assert report.meta["name"] == "small"
    assert report.meta["samples_per_run"] == 24
    assert report.meta["steps_per_run"] == 2
    assert len(report.runs) == 1


def test_cycle_count__only_when_asked_for() -> None:
    model = poptorch.inferenceModel(Scale(), options())
    model.compile(BATCH)
    with pytest.raises(poptorch.Error, match="Cycle count logging is disabled"):
        model.cycleCount()
    logged = poptorch.inferenceModel(Scale(), options().logCycleCount(True))
    logged(BATCH)
    logged(BATCH)
    assert logged.cycleCount() == logged.report().total_cycles > 0


def test_compilation_time__after_compiling__is_known() -> None:
    model = poptorch.inferenceModel(Scale(), options().showCompilationProgressBar(True))
    with pytest.raises(poptorch.Error, match="Please compile the model before obtaining compilation time"):
        model.compilationTime()
    model.compile(BATCH)
    assert model.compilationTime() > datetime.timedelta(0)
    silent = poptorch.inferenceModel(Scale(), options())
    silent.compile(BATCH)
    with pytest.raises(poptorch.Error, match="Please set showCompilationProgressBar option to obtain compilation"):
        silent.compilationTime()


def test_compile__twice__is_ignored_with_a_warning() -> None:
    model = poptorch.inferenceModel(Scale(), options())
    model.compile(BATCH)
    with pytest.warns(UserWarning, match="already compiled"):
        model.compile(BATCH)


def test_rng_state__set_and_read__replays_dropout() -> None:
    model = classifier(dropout=0.5)
    training = poptorch.trainingModel(model, options().randomSeed(42), torch.optim.SGD(model.parameters(), lr=0.0))
    first, _ = training(X, LABELS)
    assert training.rng_state == [42, 1]
    training.rng_state = [42, 0]
    again, _ = training(X, LABELS)
    assert torch.equal(first, again)


def test_rng_state__without_random_ops__is_the_seed_or_what_it_was_set_to() -> None:
    inference = poptorch.inferenceModel(classifier(), options().randomSeed(42))
    inference(X)
    assert inference.rng_state == [42, 0]
    inference.rng_state = [7, 3]
    assert inference.rng_state == [7, 3]


def test_wrapper__other_attributes__are_the_models() -> None:
    model = classifier()
    wrapped = poptorch.inferenceModel(model, options())
    assert wrapped.first is model.first
    assert wrapped.model is model
    assert [n for n, _ in wrapped.named_parameters()] == [n for n, _ in model.named_parameters()]
    with pytest.raises(AttributeError):
        _ = wrapped.absent


def test_half_model__runs_in_half() -> None:
    model = classifier().half()
    got = poptorch.inferenceModel(model, options())(X.half())
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.float(), copy.deepcopy(model).float()(X), rtol=2e-2, atol=5e-3)


# --- element types ----------------------------------------------------------------------------------------------------


class AllNorms(nn.Module):
    """Norms beside each other, of parameters and statistics in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(4), nn.BatchNorm1d(4), nn.GroupNorm(2, 4)])

    def forward(self, x: torch.Tensor) -> Any:
        made = [norm(x) for norm in self.norms]
        return *made, poptorch.identity_loss(sum((y.float() ** 2).sum() for y in made), "sum")


@pytest.mark.parametrize("training", [True, False])
def test_norms__of_half_with_float_statistics__equal_pytorch(training: bool) -> None:
    torch.manual_seed(0)
    model = AllNorms().train(training)
    eager, x = copy.deepcopy(model), torch.randn(6, 4).half()
    *expected, _ = eager(x)
    wrapped = poptorch.trainingModel(model, options()) if training else poptorch.inferenceModel(model, options())
    *got, _ = wrapped(x)
    for norm, made, value in zip(eager.norms, got, expected, strict=True):
        assert made.dtype == value.dtype == torch.float16, norm
        torch.testing.assert_close(made, value.detach(), rtol=2e-3, atol=2e-3, msg=lambda m, n=norm: f"{n}: {m}")
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer.detach(), eager.get_buffer(name), rtol=1e-3, atol=1e-3, msg=name)


INTEGERS = {
    "sign": torch.sign,
    "clamp": lambda x: x.clamp(-2, 1),
    "power": lambda x: x**2 - x.abs(),
    "times_bool": lambda x: x * (x > 1),
    "count": lambda x: (x > 0).sum(),
    "bitwise": lambda x: (x & 3) | ~x,
    "relu": torch.relu,
    "relu6": lambda x: torch.nn.functional.relu6(x * 3),
}


def test_integers__element_wise__equal_pytorch() -> None:
    x = torch.arange(-4, 4)
    got = poptorch.inferenceModel(lambda x: tuple(made(x) for made in INTEGERS.values()), options())(x)
    for (name, made), value in zip(INTEGERS.items(), got, strict=True):
        assert torch.equal(value.long(), made(x)), name


def test_clamp__on_the_device__equals_pytorch() -> None:
    bounds = [(0.8, 0.2), (-0.5, 0.5), (None, 0.1), (0.3, 0.3)]
    x = torch.linspace(-1, 1, 12)
    got = poptorch.inferenceModel(lambda x: tuple(x.clamp(*b) for b in bounds), options())(x)
    for each, value in zip(bounds, got, strict=True):
        assert torch.equal(value, x.clamp(*each)), each


@pytest.mark.parametrize("first", ["x", "w"])
def test_training__of_scalars_taken_from_matrices__equals_pytorch(first: str) -> None:
    # The gradient of x is a part of w. An update of w, before that of x or beside it, must not change it.
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = {"x": torch.arange(30.0).reshape(6, 5), "w": torch.arange(6.0).reshape(2, 3)}
            for name in sorted(made, key=lambda name: name != first):
                setattr(self, name, nn.Parameter(made[name]))

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss((self.x[5] * self.w[1, 1]).sum() + 0 * u.sum(), "none")

    model = Scaled()
    eager = copy.deepcopy(model)
    eager(X).backward()
    training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=1.0))
    training(X)
    for got, expected in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got.detach(), (expected - expected.grad).detach())
