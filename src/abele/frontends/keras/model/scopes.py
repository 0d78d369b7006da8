"""Scopes that programs are in: of strategies, and of stages of pipelines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

from abele.errors import InvalidOptionError, SessionError
from abele.frontends.keras.private import Node, Operation

LABEL = "abele_stage_"
"""Beginning of the name scopes in which the ops of a stage are traced."""
STAGE = "_abele_stage"
"""Attribute of layers made, and of nodes called, in the scope of a stage."""


class _Scopes(threading.local):
    """Scopes of this thread."""

    def __init__(self) -> None:
        self.strategies: list[Any] = []
        self.tracing = 0
        self.replicas = 0
        self.stage: int | None = None
        self.entered: list[int] = []


SCOPES = _Scopes()


def check_in_strategy(what: str) -> None:
    """Raise outside of a strategy's scope; models are traced as if they were in one.

    Raises:
        SessionError: There is none.
    """
    if not SCOPES.strategies and not SCOPES.tracing:
        raise SessionError(f"{what} is in no scope of an IPUStrategy", remedy="with IPUStrategy().scope(): ...")


@contextmanager
def tracing(replicas: int = 0) -> Iterator[list[int]]:
    """A model is traced inside, for so many replicas (0: for shapes alone); gives the stages that its code enters."""
    SCOPES.tracing += 1
    before, SCOPES.entered, SCOPES.replicas = (SCOPES.entered, SCOPES.replicas), [], replicas
    try:
        yield SCOPES.entered
    finally:
        SCOPES.tracing -= 1
        SCOPES.entered, SCOPES.replicas = before


@contextmanager
def stage_scope(stage: int) -> Iterator[None]:
    """Equations that are traced inside belong to a stage."""
    with jax.named_scope(f"{LABEL}{stage}"):
        yield


class PipelineStage:
    """Layers that are called inside, or else those made inside, belong to a stage of the pipeline.

    Args:
        stage: Number of the stage, from 0.

    Raises:
        InvalidOptionError: A number below zero.
    """

    def __init__(self, stage: int) -> None:
        if isinstance(stage, bool) or not isinstance(stage, int) or stage < 0:
            raise InvalidOptionError(f"a pipeline stage is a whole number from 0 on, not {stage!r}")
        self.stage = stage
        self._stack = ExitStack()

    def __enter__(self) -> PipelineStage:
        """Begin; see the class.

        Raises:
            SessionError: Inside of another stage, or outside of a strategy.
        """
        check_in_strategy(f"PipelineStage({self.stage})")
        if SCOPES.stage is not None:
            raise SessionError(
                f"PipelineStage({self.stage}) is inside of PipelineStage({SCOPES.stage})", remedy="one after the other"
            )
        SCOPES.stage = self.stage
        SCOPES.entered.append(self.stage)
        self._stack.enter_context(_noting())
        self._stack.enter_context(stage_scope(self.stage))
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        SCOPES.stage = None
        self._stack.close()


@contextmanager
def _noting() -> Iterator[None]:
    """Layers and nodes made inside note the stage."""
    make_operation, make_node = Operation.__init__, Node.__init__

    def operation(self: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__[STAGE] = SCOPES.stage
        make_operation(self, *args, **kwargs)

    def node(self: Any, *args: Any, **kwargs: Any) -> None:
        make_node(self, *args, **kwargs)
        self.__dict__[STAGE] = SCOPES.stage

    Operation.__init__, Node.__init__ = operation, node
    try:
        yield
    finally:
        Operation.__init__, Node.__init__ = make_operation, make_node


def noted_stage(of: Any) -> int | None:
    """The stage that a layer or node noted."""
    found: int | None = of.__dict__.get(STAGE)
    return found
