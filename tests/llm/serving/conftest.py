"""A scripted model behind the application, in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")

from starlette.testclient import TestClient

from abele.llm.serving.app import serving_app
from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.served import ServedModel
from abele.llm.serving.worker import GenerationWorker
from support.scripted_model import scripted_model

Opening = Callable[..., "contextlib.AbstractContextManager[TestClient]"]


@contextlib.contextmanager
def opened(model: ServedModel | None = None, limits: ServingLimits | None = None, **how: Any) -> Iterator[TestClient]:
    """A client of an application; ``client.worker`` is the worker."""
    model = scripted_model() if model is None else model
    worker = GenerationWorker(model.engine, ServingLimits() if limits is None else limits)
    with TestClient(serving_app(model, worker, **how), base_url="http://localhost:8000") as client:
        client.worker = worker  # type: ignore[attr-defined]
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of a server with default settings."""
    with opened() as client:
        yield client


@pytest.fixture
def opening() -> Opening:
    """A function that opens a client of a server with other settings."""
    return opened
