"""Parts shared by the demos: options, a model with its loss, training and predicting through PopTorch's names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor, nn, optim

from abele import poptorch
from abele.errors import AbeleError, InvalidOptionError
from abele.machine import System, systems
from abele.report import Report

# Settings of a demo.


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Choices of a demo.

    Attributes:
        system: The machine that is modelled.
        threads: Host threads; None for all cores.
        seed: Seed of initial weights, dropout, order of samples and simulated data.
        epochs: Passes over the training data; None for the demo's own number.
        dump_passes: A folder for the text of the networks after each pass of the compiler; None for no such files.

    Raises:
        InvalidOptionError: ``threads`` or ``epochs`` is below 1, or ``seed`` below 0.
    """

    system: System = field(default_factory=systems.bow_2000)
    threads: int | None = None
    seed: int = 0
    epochs: int | None = None
    dump_passes: str | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("threads", self.threads, 1), ("epochs", self.epochs, 1), ("seed", self.seed, 0)):
            if value is not None and value < least:
                raise InvalidOptionError(f"{name} = {value}: must be at least {least}")


def require(*modules: str, extra: str = "demo") -> None:
    """Check that optional packages can be imported.

    Args:
        modules: Their modules.
        extra: The extra that brings them.

    Raises:
        AbeleError: One of them is missing; the error says what to run.
    """
    from importlib.util import find_spec

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise AbeleError(
            f"this demo needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            remedy=f"pip install 'abele[{extra}]'",
        )


# Progress bars of the demos.


class Advance(Protocol):
    """Moves a bar on by one and shows a figure beside it."""

    def __call__(self, figure: str = "") -> None:
        """Advance by one."""


@contextmanager
def progress_bar(console: Console, title: str, total: int) -> Iterator[Advance]:
    """A bar of ``total`` steps under ``title``; it stays on the screen when done."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figure]}"),
    )
    with Progress(*columns, console=console, transient=False) as progress:
        task = progress.add_task(title, total=total, figure="")

        def advance(figure: str = "") -> None:
            progress.update(task, advance=1, figure=figure)

        yield advance


# Result of a demo: its own figures, what running took, and the report of the modelled machine.


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A figure on data that training never saw, beside what simpler means reach on the same data.

    Attributes:
        measure: Name of the measure: ``"accuracy"``.
        value: Value that the trained model reaches.
        beside: Values of simpler means, by name.
        on: Data of the measurement: ``"471 held-out modules"``.
        is_share: The figures are shares, said in per cent.
        higher_is_better: The larger figure is the better one.
    """

    measure: str
    value: float
    beside: dict[str, float]
    on: str
    is_share: bool = False
    higher_is_better: bool = False

    @property
    def beats_all(self) -> bool:
        """The model is better than every simpler means."""
        sign = 1 if self.higher_is_better else -1
        return all(sign * self.value > sign * other for other in self.beside.values())

    def text(self) -> str:
        """The figures in a line."""
        beside = ", ".join(f"{name} {self._figure(value)}" for name, value in self.beside.items())
        return f"{self._figure(self.value)} on {self.on} (beside it: {beside})"

    def _figure(self, value: float) -> str:
        return f"{value:.1%}" if self.is_share else f"{value:.3f}"


@dataclass(kw_only=True)
class DemoResult:
    """Outcome of a demo.

    Attributes:
        name: Name of the demo.
        note: Note for readers of the figures.
        figures: Its own figures by name: accuracy, errors, weights digest.
        seconds: Real time of each part on the host.
        report: Cost of the training program on the modelled machine.
        comparisons: Rows that set modelled beside measured figures.
        comparison_note: Assumptions behind them.
        held_out: Figures on held-out data beside simpler means.
        exhibit: Something that the trained model made, as text.
    """

    name: str
    note: str
    figures: dict[str, float | int | str]
    seconds: dict[str, float]
    report: Report
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    comparison_note: str = ""
    held_out: tuple[HeldOut, ...] = ()
    exhibit: str = ""

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "demo": self.name,
            "note": self.note,
            "figures": self.figures,
            "held_out": [asdict(figure) for figure in self.held_out],
            "exhibit": self.exhibit,
            "seconds": self.seconds,
            "comparisons": self.comparisons,
            "comparison_note": self.comparison_note,
            "report": self.report.to_json(),
        }


class Stopwatch:
    """Real time of named parts, added up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Add the time that the block takes to ``part``."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - start


def weights_digest(model: Any) -> str:
    """SHA-256 of all parameters of a PyTorch module, to see that two runs agree to the last bit."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def options(settings: DemoSettings) -> poptorch.Options:
    """Options that training and inference share."""
    opts = poptorch.Options().randomSeed(settings.seed)
    opts.Abele.system(settings.system)
    if settings.threads is not None:
        opts.Abele.threads(settings.threads)
    if settings.dump_passes is not None:
        opts.Abele.dumpPasses(settings.dump_passes)
    return opts


class WithLoss(nn.Module):
    """A network with its loss: PopTorch runs forward, backward and update in one call.

    Args:
        model: The network; it takes all inputs but the last.
        loss: Loss of what the network gives and the last input.
    """

    def __init__(self, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss."""
        return self.loss(self.model(*inputs[:-1]), inputs[-1])


@dataclass(frozen=True)
class Trained:
    """Mean loss of the last epoch, and what training costs on the modelled machine."""

    loss: float
    report: Report


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training of a demo.

    Attributes:
        data: Batches of inputs; the last of them is what the loss compares with.
        options: PopTorch's options.
        epochs: Passes over the data.
        title: Title of the progress bar.
        shown: Format of losses.
    """

    data: poptorch.DataLoader
    options: poptorch.Options
    epochs: int
    title: str = "training"
    shown: str = ".4f"

    def run(self, model: nn.Module, optimizer: optim.Optimizer, watch: Stopwatch, console: Console) -> Trained:
        """Compile, train and take the weights back into ``model``, which gives its loss, alone or last."""
        executor = poptorch.trainingModel(model, self.options, optimizer=optimizer)
        with watch.measure("compile"):
            executor.compile(*next(iter(self.data)))
        calls, losses = self.epochs * len(self.data), torch.zeros(0)
        with watch.measure("train"), progress_bar(console, self.title, calls) as advance:
            for _ in range(self.epochs):
                epoch = []
                for batch in self.data:
                    made = executor(*batch)
                    loss = made[-1] if isinstance(made, tuple) else made
                    epoch.append(loss)
                    advance(f"loss {loss.mean().item():{self.shown}}")
                losses = torch.cat([loss.reshape(-1) for loss in epoch])
        report = executor.report(self.data)
        executor.detachFromDevice()
        return Trained(float(losses.double().mean()), report)


class Predictor:
    """A network in inference, a batch of fixed size at a time.

    Args:
        model: The network.
        options: PopTorch's options.
        batch: Samples of a call; what is left of the last call is filled up and cut off.
    """

    def __init__(self, model: nn.Module, options: poptorch.Options, batch: int) -> None:
        self.executor = poptorch.inferenceModel(model, options)
        self.batch = batch

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs of the network for ``inputs``, whose first dim counts samples."""
        parts = []
        for part in torch.split(inputs, self.batch):
            filled = torch.cat([part, part[-1:].expand(self.batch - len(part), *part.shape[1:])])
            parts.append(self.executor(filled)[: len(part)])
        return torch.cat(parts)
