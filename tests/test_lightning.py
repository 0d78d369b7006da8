"""``LightningModule``s on the modelled machine, held against the same ``Trainer`` on the CPU."""

from __future__ import annotations

import importlib.util
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Of the packages that Lightning imports.
    pl = pytest.importorskip("lightning.pytorch", reason="needs Lightning: pip install 'abele[lightning]'")
    import torchmetrics
    from torchmetrics.classification import MulticlassAccuracy

import abele.lightning
from abele import poptorch
from abele.errors import InvalidOptionError, MissingPackageError
from abele.lightning import AbeleAccelerator, AbeleStrategy, accelerator
from abele.lightning.strategy import HostBatches, joined
from abele.machine import systems

pytestmark = pytest.mark.filterwarnings("ignore:::lightning", "ignore:.*LeafSpec.*", "ignore:.*torch.utils._pytree.*")

DataLoader, TensorDataset = torch.utils.data.DataLoader, torch.utils.data.TensorDataset
_RNG = torch.Generator().manual_seed(7)
X, LABELS = torch.randn(72, 6, generator=_RNG), torch.randint(0, 3, (72,), generator=_RNG)

Make = Callable[[Any], torch.optim.Optimizer]


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


class Classifier(pl.LightningModule):
    """As people write them: nothing in it knows of the machine."""

    def __init__(self, make: Make = adam) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        self.loss = torch.nn.CrossEntropyLoss()
        self.accuracy, self.test_accuracy = MulticlassAccuracy(3), MulticlassAccuracy(3)
        self.make = make

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, prog_bar=True)
        self.log_dict({"most": loss.detach(), "two": 2.0}, on_step=False, on_epoch=True, reduce_fx="max")
        return {"loss": loss, "scores": self(x)}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        scores = self(x)
        self.accuracy.update(scores, y)
        self.log("val_loss", self.loss(scores, y))
        self.log("val_accuracy", self.accuracy)

    def test_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        scores = self(x)
        self.log("test_accuracy", self.test_accuracy(scores, y), on_epoch=True)
        return self.loss(scores, y)

    def configure_optimizers(self) -> Any:
        optimizer = self.make(self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def options() -> poptorch.Options:
    opts = poptorch.Options().showCompilationProgressBar(False)
    opts.Abele.system(systems.get("bow-2000").evolve(ipu={"num_tiles": 16}))
    return opts


def loader(size: int = 8, count: int = 64) -> Any:
    return DataLoader(TensorDataset(X[:count], LABELS[:count]), batch_size=size)


def trainer(strategy: Any, epochs: int = 2, **more: Any) -> Any:
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    where = {"accelerator": "abele" if isinstance(strategy, AbeleStrategy) else "cpu", "devices": 1}
    return pl.Trainer(strategy=strategy, max_epochs=epochs, **{**quiet, **where, **more})


def weights(module: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def numbers(made: Any) -> dict[str, float]:
    return {name: float(value) for name, value in made.callback_metrics.items()}


def test_fit__and_validate_test_predict__are_as_on_the_cpu() -> None:
    found = []
    for strategy in (AbeleStrategy(options()), "auto"):
        module, made = Classifier(), trainer(strategy)
        # 68 samples: the last batch of validation is smaller, and counts.
        made.fit(module, loader(), loader(count=68))
        fitted = numbers(made)
        scores = torch.cat(made.predict(module, DataLoader(X[:68], batch_size=8)))
        (tested,) = made.test(module, loader(count=68), verbose=False)
        found.append((module, made, fitted, scores, tested))
    (ours, made, fitted, scores, tested), (cpu, cpu_made, cpu_fitted, cpu_scores, cpu_tested) = found
    torch.testing.assert_close(weights(ours), weights(cpu), rtol=1e-4, atol=1e-5)
    assert set(fitted) == {"loss", "most", "two", "val_loss", "val_accuracy"}
    assert fitted == pytest.approx(cpu_fitted, rel=1e-4)
    torch.testing.assert_close(scores, cpu_scores, rtol=1e-3, atol=1e-4)
    assert tested == pytest.approx(cpu_tested, rel=1e-4)
    assert made.global_step == cpu_made.global_step == 16
    state, cpu_state = (m.optimizers[0].state_dict() for m in (made, cpu_made))
    assert state["param_groups"] == cpu_state["param_groups"], "the scheduler went on"
    torch.testing.assert_close(state["state"], cpu_state["state"], rtol=1e-3, atol=1e-5)
    assert type(next(ours.parameters())) is torch.nn.Parameter


def test_fit__accumulation_replicas_and_iterations__is_one_host_batch_of_all(caplog: pytest.LogCaptureFixture) -> None:
    strategy, module = AbeleStrategy(options().deviceIterations(2)), Classifier(momentum)
    made = trainer(strategy, devices=2, accumulate_grad_batches=2)
    with caplog.at_level(logging.WARNING, "poptorch::python"):
        made.fit(module, loader(4, 72), loader(4, 72))
    assert "2 of the loader's batches are not trained on" in caplog.text
    assert made.global_step == 4, "two host batches of 2 iterations x 2 micro-batches x 2 replicas x 4 samples an epoch"
    cpu, cpu_made = Classifier(momentum), trainer("auto")
    cpu_made.fit(cpu, loader(16), loader(4, 72))
    torch.testing.assert_close(weights(module), weights(cpu), rtol=1e-4, atol=1e-5)
    ours, theirs = numbers(made), numbers(cpu_made)
    assert {n: ours[n] for n in ("loss", "val_loss", "val_accuracy")} == pytest.approx(
        {n: theirs[n] for n in ("loss", "val_loss", "val_accuracy")}, rel=1e-4
    )
    assert made.accumulate_grad_batches == 2


@pytest.mark.parametrize("make", [adam, momentum, lambda p: poptorch.optim.AdamW(p, lr=0.05)])
def test_checkpoint__of_the_middle__goes_on_as_if_nothing_had_been(make: Make, tmp_path: Path) -> None:
    whole = Classifier(make)
    trainer(AbeleStrategy(options()), epochs=3).fit(whole, loader())
    first, path = trainer(AbeleStrategy(options()), epochs=1), tmp_path / "one.ckpt"
    first.fit(Classifier(make), loader())
    first.save_checkpoint(path)
    rest = Classifier(make)
    kept = pl.callbacks.ModelCheckpoint(tmp_path / "kept", save_last=True)
    strategy = AbeleStrategy(options())
    trainer(strategy, epochs=2, enable_checkpointing=True, callbacks=[kept]).fit(rest, loader(), ckpt_path=path)
    # A callback wrote the second while the model was on the device.
    last = Classifier(make)
    trainer(strategy, epochs=3).fit(last, loader(), ckpt_path=kept.last_model_path)
    torch.testing.assert_close(weights(last), weights(whole), rtol=1e-5, atol=1e-6)
    if isinstance(make(whole.parameters()), poptorch.optim.Optimizer):
        return
    cpu = Classifier(make)
    trainer("auto", epochs=3).fit(cpu, loader(), ckpt_path=kept.last_model_path)
    torch.testing.assert_close(weights(cpu), weights(whole), rtol=1e-4, atol=1e-5)


def test_fit__of_half_precision__trains_in_it() -> None:
    module = Classifier(momentum)
    made = trainer(AbeleStrategy(options()), epochs=4, precision="16-true")
    made.fit(module, loader())
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float16}
    assert numbers(made)["loss"] < 1.1


def test_strategy__by_name__is_registered_once() -> None:
    made = trainer("abele", accelerator="abele")
    assert isinstance(made.strategy, AbeleStrategy)
    assert isinstance(made.accelerator, AbeleAccelerator)
    importlib.reload(abele.lightning)
    assert isinstance(trainer(AbeleStrategy(), accelerator=AbeleAccelerator()).accelerator, AbeleAccelerator)
    assert isinstance(trainer(AbeleStrategy(), accelerator="auto").accelerator, AbeleAccelerator)


class Manual(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Lossless(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        return None


class UsesMetric(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self(x), y) * self.accuracy(self(x), y).item()


@pytest.mark.parametrize(
    ("module", "more", "text"),
    [
        (Manual, {}, "automatic_optimization is False"),
        (Classifier, {"precision": "bf16-mixed"}, "precision 'bf16-mixed'(.|\n)*'32-true' or '16-true'"),
        (Classifier, {"gradient_clip_val": 1.0}, "gradients are clipped where they are(.|\n)*max_grad_norm="),
        (Lossless, {}, "training_step returned None, which has no loss"),
        (UsesMetric, {}, r"the step uses \.item of a metric's value"),
        (Classifier, {"callbacks": [pl.callbacks.GradientAccumulationScheduler({0: 2})]}, "accumulate_grad_batches ch"),
    ],
)
def test_fit__of_what_the_device_cannot__says_so(module: type, more: dict[str, Any], text: str) -> None:
    with pytest.raises((InvalidOptionError, poptorch.Error), match=text):
        trainer(AbeleStrategy(options()), **more).fit(module(), loader())


def test_accelerator__without_the_strategy__does_not_run_on_the_host() -> None:
    made = pl.Trainer(accelerator="abele", logger=False, enable_checkpointing=False, max_epochs=1)
    with pytest.raises(InvalidOptionError, match=r"would run on the host(.|\n)*strategy=abele.lightning.AbeleStrategy"):
        made.fit(Classifier(), loader())


def test_step__that_looks_at_batch_idx__is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    class Looks(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx % 2 == 0:
                self.log("even", 1.0)
            return super().training_step(batch, batch_idx)

    with caplog.at_level(logging.WARNING, "poptorch::python"):
        made = trainer(AbeleStrategy(options()), epochs=1, limit_train_batches=1)
        made.fit(Looks(), loader())
    assert "training_step looked at batch_idx, which is 0 while it is recorded" in caplog.text
    assert numbers(made)["even"] == 1


def test_step__with_a_collection_of_metrics__logs_each() -> None:
    class Collected(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.metrics = torchmetrics.MetricCollection({"top1": MulticlassAccuracy(3, average="micro")})

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            self.log_dict(self.metrics(self(x), y))

    module = Collected()
    (got,) = trainer(AbeleStrategy(options())).validate(module, loader(count=68), verbose=False)
    right = (module.net(X[:68]).argmax(1) == LABELS[:68]).float().mean()
    assert got["top1"] == pytest.approx(float(right))


# --- host batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("samples", [16, 17, 31])
def test_host_batches__of_inference__lose_no_sample(samples: int, count: int) -> None:
    batches = HostBatches(DataLoader(X[:samples], batch_size=4), count, training=False)
    found = list(batches)
    assert len(found) == len(batches)
    torch.testing.assert_close(torch.cat(sorted(found, key=lambda t: X.tolist().index(t[0].tolist()))), X[:samples])
    assert all(batches.counts[len(batch)] in (1, count) for batch in found)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_host_batches__of_training__are_all_of_one_size(count: int) -> None:
    batches = HostBatches(DataLoader(X[:30], batch_size=4), count, training=True)
    assert [len(batch) for batch in batches] == [4 * count] * len(batches)


def test_joined__batches_of_trees__joins_their_tensors() -> None:
    made = joined([{"x": X[:2], "y": (LABELS[:2], "a")}, {"x": X[2:4], "y": (LABELS[2:4], "a")}])
    assert torch.equal(made["x"], X[:4])
    assert torch.equal(made["y"][0], LABELS[:4])
    with pytest.raises(InvalidOptionError, match="'a' in one is 'b' in another"):
        joined([(X[:2], "a"), (X[:2], "b")])


def test_framework__not_installed__says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'abele\[lightning\]'"):
        accelerator._package()
    monkeypatch.setitem(sys.modules, "pytorch_lightning", pl)
    assert accelerator._package() == "pytorch_lightning"
