"""One entry in one type: every case through ``abele.poptorch``, held against PyTorch."""

from __future__ import annotations

import contextlib
import copy
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from abele import poptorch
from operators import scope
from operators.compare import DifferenceError, difference
from operators.samples import Case, Entry, Model, cases


class OutOfTimeError(BaseException):
    """A case takes longer than it may; not an Exception, so that nothing on the way catches it."""


@dataclass
class Row:
    """Result of an entry in a type.

    Attributes:
        entry: The entry's name.
        dtype: The type, as in ``f32``.
        kind: ``operator`` or ``module``.
        status: ``pass``, ``fail`` or ``excluded``.
        reason: Why, for the last two.
        cases: Cases that passed.
        gradients: Cases whose gradient passed.
        failures: Failures, case by case.
        skipped: Samples without meaning here, and why.
        error: The largest error, relative to the largest value of its tensor (at least 1).
        seconds: Processor time.
    """

    entry: str
    dtype: str
    kind: str
    status: str = "pass"
    reason: str = ""
    cases: int = 0
    gradients: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    error: float = 0.0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Limits:
    """Limits of the run of each entry.

    Attributes:
        samples: Samples.
        gradients: True for gradients as well.
        seconds: Most processor time for one case.
    """

    samples: int = 4
    gradients: bool = True
    seconds: float = 20.0


def run_entry(entry: Entry, dtype: torch.dtype, name: str, limits: Limits, begin: Callable[[str], None]) -> Row:
    """Run the cases of an entry.

    Args:
        entry: The entry.
        dtype: The type of its samples.
        name: The type's short name.
        limits: Limits of the run.
        begin: Called with the label of each case before it runs.
    """
    row, start = Row(entry.name, name, entry.kind), time.process_time()
    reason = scope.entry_exclusion(entry, dtype)
    if reason is None:
        begin("samples")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with _time_limit(4 * limits.seconds):
                    found = list(cases(entry, dtype, limits.samples, gradients=limits.gradients))
            except (Exception, OutOfTimeError) as error:
                found = []
                row.skipped.append(f"no samples: PyTorch's own maker fails: {described(error)}")
            for case in found:
                begin(case.label)
                _run_case(case, row, limits)
    _conclude(row, reason)
    row.seconds = time.process_time() - start
    return row


def _conclude(row: Row, reason: str | None) -> None:
    if reason is not None:
        row.status, row.reason = "excluded", reason
    elif row.failures:
        row.status, row.reason = "fail", row.failures[0]
    elif not row.cases:
        row.status, row.reason = "excluded", _most_common(row.skipped) or scope.EMPTY


def _most_common(reasons: list[str]) -> str:
    texts = [reason.split(" | ", 1)[-1] for reason in reasons]
    return max(texts, key=texts.count) if texts else ""


def _run_case(case: Case, row: Row, limits: Limits) -> None:
    step = "forward"
    try:
        with _time_limit(limits.seconds):
            expected = _eager(case)
            skip = scope.result_exclusion(expected.result)
            if skip is None and scope.is_random(case):
                _check_random(case, expected.result)
                skip = scope.UNDEFINED
            if skip is not None:
                row.skipped.append(f"{case.label} | {skip}")
                return
            row.error = max(row.error, _check_forward(case, expected))
            row.cases += 1
            if case.trains:
                step = "gradient"
                checked, error = _check_gradient(case)
                row.error = max(row.error, error)
                row.gradients += checked
    except _UnusableError as error:
        row.skipped.append(f"{case.label} | {error}")
    except (Exception, OutOfTimeError) as error:
        with contextlib.suppress(Exception):
            reason = scope.failure_exclusion(case)
            if reason is not None:
                row.skipped.append(f"{case.label} | {reason}")
                return
        row.failures.append(f"{case.label}, {step}: {described(error)}")


def described(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, DifferenceError):
        return str(error)
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]


class _UnusableError(Exception):
    """PyTorch itself cannot run the case."""


@dataclass
class _Expected:
    """PyTorch's result of a case, its inputs afterwards, and the result in float64 where there is one."""

    result: Any
    inputs: list[torch.Tensor]
    model: Model


def _eager(case: Case) -> _Expected:
    model = Model(case, training=False)
    inputs = [t.clone() for t in model.inputs]
    try:
        with torch.no_grad():
            torch.manual_seed(1)
            result = copy.deepcopy(model)(*inputs)
    except Exception as error:
        raise _UnusableError(f"PyTorch itself fails: {described(error)}") from None
    return _Expected(result, inputs, model)


def _exact(case: Case) -> Any:
    """PyTorch's result in float64; None where there is none."""
    with contextlib.suppress(Exception), torch.no_grad():
        wide = Model(_widened(case), training=False)
        return wide(*wide.inputs)
    return None


def _widened(case: Case) -> Case:
    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.detach().double().requires_grad_(leaf.requires_grad)
        return torch.float64 if leaf in (torch.float16, torch.float32) else leaf

    args, kwargs = pytree.tree_map(widen, (case.args, case.kwargs))
    wide = copy.copy(case)
    wide.args, wide.kwargs, wide.is_wide = args, kwargs, True
    wide.module = None if case.module is None else copy.deepcopy(case.module).double()
    return wide


def _options() -> Any:
    options = poptorch.Options()
    options.Abele.threads(1)
    return options


def _check_random(case: Case, expected: Any) -> None:
    """A random result: only its structure, types and shapes can be compared."""
    model = Model(case, training=False)
    executor = poptorch.inferenceModel(model, _options())
    try:
        got = executor(*model.inputs)
    finally:
        executor.destroy()
    blank = [pytree.tree_map_only(torch.Tensor, torch.zeros_like, tree) for tree in (got, expected)]
    difference(*blank)


def _difference_of_finished(case: Case, got: Any, expected: Any) -> float:
    """The error beside PyTorch in float64, or of what a sample makes of results of which only a part is determined."""
    try:
        return difference(got, expected, _exact(case))
    except DifferenceError as error:
        for finish in (case.finish, case.determined):
            with contextlib.suppress(Exception), torch.no_grad():
                if finish is not None:
                    return difference(finish(got), finish(expected))
        raise error


def _check_forward(case: Case, expected: _Expected) -> float:
    model = Model(case, training=False)
    inputs = [t.clone() for t in model.inputs]
    if case.module is not None and case.module.training:
        return 0.0  # An inference model is in evaluation mode; training mode is checked with the gradient.
    executor = poptorch.inferenceModel(model, _options())
    try:
        got = executor(*inputs)
    finally:
        executor.destroy()
    try:
        worst = difference(got, expected.result)
    except DifferenceError:
        worst = _difference_of_finished(case, got, expected.result)
    if case.changes_input:
        # The caller's tensors keep their types, also where results come back narrower.
        worst = max(worst, difference([_narrowed(t) for t in inputs], expected.inputs))
    return worst


def _narrowed(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the caller's in the type in which results come back."""
    return tensor.to({torch.int64: torch.int32, torch.float64: torch.float32}.get(tensor.dtype, tensor.dtype))


def _check_gradient(case: Case) -> tuple[int, float]:
    """One step of training beside PyTorch's; returns how many gradients were compared, and the largest error."""
    eager = Model(case, training=True)
    ours = copy.deepcopy(eager)
    try:
        torch.manual_seed(1)
        eager_inputs = [t.clone() for t in eager.inputs]
        result, loss = eager(*eager_inputs)
        if not loss.requires_grad:
            return 0, 0.0
        loss.backward()
    except Exception as error:
        raise _UnusableError(f"PyTorch itself fails: {described(error)}") from None
    exact_result, exact = _exact_step(case)
    optimizer = torch.optim.SGD(ours.parameters(), lr=1.0)
    executor = poptorch.trainingModel(ours, _options(), optimizer)
    try:
        got, _ = executor(*[t.clone() for t in ours.inputs])
        executor.copyWeightsToHost()
    finally:
        executor.destroy()
    try:
        worst = difference(got, result, exact_result)
    except DifferenceError:
        if case.determined is None:
            raise
        # Another choice among equals has another gradient.
        return 0, difference(case.determined(got), case.determined(result))
    for number, ((name, a), b) in enumerate(zip(ours.named_parameters(), eager.parameters(), strict=True)):
        step = b.detach() - b.grad if b.grad is not None else b.detach()
        wide = None if exact is None else exact[number]
        try:
            worst = max(worst, difference(_narrowed(a.detach()), step, wide))
        except DifferenceError as error:
            slopes = [b.detach().double() - p.detach().double() for p in (a, step)]
            if not _is_derivative(case, number, slopes[0]) or _is_derivative(case, number, slopes[1]):
                raise DifferenceError(f"gradient of {name}: {error}") from None
    for (name, a), b in zip(ours.named_buffers(), eager.buffers(), strict=True):
        try:
            worst = max(worst, difference(_narrowed(a), b))
        except DifferenceError as error:
            raise DifferenceError(f"buffer {name}: {error}") from None
    return 1, worst


def _exact_step(case: Case) -> tuple[Any, list[torch.Tensor] | None]:
    """The result and the parameters after a step in float64; None where PyTorch cannot."""
    with contextlib.suppress(Exception):
        wide = Model(_widened(case), training=True)
        result, loss = wide(*wide.inputs)
        loss.backward()
        return result, [p.detach() - p.grad if p.grad is not None else p.detach() for p in wide.parameters()]
    return None, None


def _is_derivative(case: Case, number: int, gradient: torch.Tensor) -> bool:
    """True if a gradient of a parameter is that of the loss, as steps in float64 say: some of PyTorch's own are not."""
    torch.manual_seed(2)
    wide = Model(_widened(case), training=True)
    parameter = wide.trained[number]
    for _ in range(3):
        way = torch.randn_like(parameter)
        losses = []
        for step in (way * 1e-5, way * -2e-5, way * 1e-5):
            with torch.no_grad():
                parameter += step
            losses.append(float(wide(*wide.inputs)[1].detach()))
        slope, said = (losses[0] - losses[1]) / 2e-5, float((gradient * way).sum())
        if not abs(slope - said) <= 1e-2 * float((gradient * way).abs().sum()) + 1e-3:
            return False
    return True


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`OutOfTimeError` after some processor time; the pool ends what never returns to Python."""

    def expired(*_: Any) -> None:
        raise OutOfTimeError(f"takes more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, expired)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
