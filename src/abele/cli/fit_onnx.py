"""``abele fit model.onnx``: what it needs beside a PyTorch model's options, and its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abele.errors import InvalidOptionError, nearest

if TYPE_CHECKING:
    from abele.cli.fit_answer import FitAnswer, FitQuestion
    from abele.network import Optimiser
    from abele.onnx import Loss

LOSSES = ("cross_entropy", "mse", "l1")
OPTIMISERS = ("sgd", "momentum", "adam", "adamw", "lamb", "rmsprop")


@dataclass(frozen=True, kw_only=True)
class OnnxChoice:
    """Choices that an ONNX model has and a PyTorch model has not.

    Attributes:
        shapes: Shapes of inputs and extents of open dimensions, as ``--shape`` takes them.
        train: Kind of a loss, ``kind:output``, or a tensor of the model; empty to run it forward alone.
        optimizer: Name of the update rule.
    """

    shapes: tuple[str, ...] = ()
    train: str = ""
    optimizer: str = "adam"


def is_onnx(model: str) -> bool:
    """True if a model is the path of an ONNX file."""
    return model.endswith(".onnx")


def found(question: FitQuestion, progress: Callable[[str, float], None]) -> FitAnswer:
    """The answer to a question about an ONNX file.

    Raises:
        InvalidOptionError: An option that an ONNX file does not have.
    """
    from abele.cli.fit_answer import FitAnswer
    from abele.cli.shapes import shapes_of
    from abele.fitting import fitted_text
    from abele.frontends.onnx.fitting import FitCase, changes_to_fit, fit
    from abele.session import Settings

    if question.group_sizes != (1,):
        raise InvalidOptionError(
            "--tensor: an ONNX model has no plan that says how its layers are split over replicas",
            remedy="a function in a Python file returns one with its model (docs/fit.md)",
        )
    progress("read the model", 0.0)
    shapes = dict(shapes_of(question.onnx.shapes))
    if question.sequence is not None:
        shapes[_sequence(question.model)] = question.sequence
    trains = bool(question.onnx.train) and not question.inference
    rule = _rule(question.onnx.optimizer) if trains else None
    loss = _loss(question.onnx.train) if trains else None
    settings = Settings(partials="f16" if question.half_partials else "f32")
    if question.changes:
        size = None if question.micro_batches is None else question.micro_batches[0]
        case = FitCase(source=question.model, shapes=shapes, loss=loss, optimizer=rule)
        report = changes_to_fit(case, system=question.system, micro_batch=size, settings=settings, progress=progress)
        changes = report.fit_changes
        return FitAnswer(text=changes.text(), code="", content=json.dumps(changes.to_json()))
    made = fit(
        question.model,
        shapes,
        loss=loss,
        optimizer=rule,
        system=question.system,
        batch=question.batch,
        micro_batches=question.micro_batches,
        io_tiles=question.io_tiles,
        settings=settings,
        check=question.check,
        progress=progress,
    )
    return FitAnswer(text=fitted_text(made.fitted), code=made.code(), content=json.dumps(made.to_json()))


def _loss(given: str) -> str | Loss:
    from abele.onnx import Loss

    kind, colon, output = given.partition(":")
    return Loss(kind, output) if kind in LOSSES and (output or not colon) else given


def _rule(name: str) -> Optimiser:
    from abele.network import Adam, Lamb, RmsProp, Sgd

    rules = {
        "sgd": Sgd(),
        "momentum": Sgd(momentum=0.9),
        "adam": Adam(),
        "adamw": Adam(weight_decay=0.01, decoupled=True),
        "lamb": Lamb(weight_decay=0.01),
        "rmsprop": RmsProp(),
    }
    if name not in rules:
        close = nearest(name, OPTIMISERS)
        raise InvalidOptionError(
            f"--optimizer takes {', '.join(OPTIMISERS)}, got {name!r}",
            remedy=f"did you mean {close}?" if close else None,
        )
    return rules[name]


def _sequence(path: str) -> str:
    """The open dimension that is a sequence, by its name.

    Raises:
        InvalidOptionError: None is, or several are.
    """
    from abele.frontends.onnx.files import read_model

    graph = read_model(path)[0].graph
    named = {d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
    found: Sequence[str] = sorted(name for name in named if "seq" in name.lower())
    if len(found) != 1:
        raise InvalidOptionError(
            f"--sequence: {path} has {len(found) or 'no'} open dimensions that are called a sequence",
            because=f"its open dimensions are {', '.join(sorted(named)) or 'none'}",
            remedy="--shape dimension=128",
        )
    return found[0]
