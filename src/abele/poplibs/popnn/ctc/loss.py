"""The functions of CTC loss: arguments are checked, and sweeps are appended as one library call."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy, Graph, Sequence, Tensor
from abele.numerics import ElementType, as_element_type, f32, u32
from abele.poplibs.popnn.ctc.host import host_ctc
from abele.poplibs.popnn.ctc.plan import OPTIONS, Plan, over_time
from abele.poplibs.popnn.ctc.sweep import Operands, Sweeps
from abele.poplibs.popnn.softmax import log_softmax
from abele.poplibs.popops.elementwise.cast import cast, cast_with_output
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.options import Options, read_options
from abele.poplibs.poputil.record_calls import takes_fields_of
from abele.words import counted


@dataclass(frozen=True)
class CtcOfProbabilities:
    """A call on log-probabilities; fields as :func:`calc_loss_and_gradient_log_probabilities` says."""

    graph: Graph
    out_type: ElementType | str
    log_probs: Tensor
    labels: Tensor
    data_lengths: Tensor
    label_lengths: Tensor
    prog: Sequence
    blank_class: int
    plan: Plan
    _: KW_ONLY
    options: Options = None
    name: str = ""

    @property
    def operands(self) -> Operands:
        """Data, labels, and the lengths of both."""
        return Operands(self.log_probs, self.labels, self.data_lengths, self.label_lengths)


@dataclass(frozen=True)
class CtcOfLogits:
    """A call on logits; other fields as :func:`calc_loss_and_gradient_log_probabilities` says."""

    graph: Graph
    out_type: ElementType | str
    logits: Tensor
    labels: Tensor
    data_lengths: Tensor
    label_lengths: Tensor
    prog: Sequence
    blank_class: int
    plan: Plan
    _: KW_ONLY
    options: Options = None
    name: str = ""

    @property
    def operands(self) -> Operands:
        """Data, labels, and the lengths of both."""
        return Operands(self.logits, self.labels, self.data_lengths, self.label_lengths)


@takes_fields_of(CtcOfProbabilities, name="ctc_loss")
def calc_loss_and_gradient_log_probabilities(call: CtcOfProbabilities) -> tuple[Tensor, Tensor]:
    """The loss of each sequence, −ln of the probability of its labels over all alignments, and its gradient.

    Args:
        graph: The graph.
        out_type: Type of the results, as planned.
        log_probs: Natural logarithms of the classes' probabilities, [time, batch, classes], f32 or f16.
        labels: Labels of each sequence, u32 [batch, labels]; one that is no class has probability 0.
        data_lengths: Valid steps of each sequence, u32 [batch]; larger ones count as all.
        label_lengths: Valid labels of each sequence, u32 [batch]; larger ones count as all.
        prog: Program that the call is appended to.
        blank_class: The class that stands for no label.
        plan: From :func:`~abele.poplibs.popnn.ctc.plan`, for these sizes.
        options: ``includeSoftmaxGradient`` (true): the gradient is that of the logits whose log-softmax the data are,
            exp(data) less the labels' share, as PyTorch's; false: that of the data alone. ``zeroInfinity`` (false):
            labels that are impossible have loss and gradient 0, not infinity and NaN. ``partialsType`` (float),
            ``availableMemoryProportion``, ``enableReducedClassesInLabel``.
        name: Name of the call.

    Returns:
        Losses [batch] and gradients [time, batch, classes]; gradients beyond a sequence's steps are 0.

    Raises:
        TensorError: Shapes that do not fit the plan.
        TypeMismatchError: Elements of other types.
        InvalidOptionError: A blank class that there is not, an option or value that there is not.
    """
    return _loss_and_gradient(call, "calc_loss_and_gradient_log_probabilities")


@takes_fields_of(CtcOfLogits, name="ctc_loss")
def calc_loss_and_gradient_logits(call: CtcOfLogits) -> tuple[Tensor, Tensor]:
    """As :func:`calc_loss_and_gradient_log_probabilities`, of logits: a log-softmax over the classes comes first."""
    return _loss_and_gradient(call, "calc_loss_and_gradient_logits")


@takes_fields_of(CtcOfProbabilities, name="ctc_loss")
def calc_ctc_loss_log_probabilities(call: CtcOfProbabilities) -> Tensor:
    """The losses [batch] of :func:`calc_loss_and_gradient_log_probabilities` alone: nothing is swept backwards."""
    return _loss(call, "calc_ctc_loss_log_probabilities")


@takes_fields_of(CtcOfLogits, name="ctc_loss")
def calc_ctc_loss_logits(call: CtcOfLogits) -> Tensor:
    """As :func:`calc_ctc_loss_log_probabilities`, of logits: a log-softmax over the classes comes first."""
    return _loss(call, "calc_ctc_loss_logits")


def _loss_and_gradient(call: CtcOfProbabilities | CtcOfLogits, function: str) -> tuple[Tensor, Tensor]:
    read = _check(function, call)
    graph, plan = call.graph, call.plan
    with graph.scope(call.name):
        loss = _losses(graph, plan, plan.out_type, "loss")
        gradient = over_time(graph, plan, plan.out_type, "gradient")[: plan.steps]
    with _library_call(call, function, (loss, gradient)) as body:
        sweeps = Sweeps(graph, plan, call.blank_class, _logarithms(call, body), True, body)
        sweeps.run()
        whole = _finish(graph, sweeps, loss, read["zeroInfinity"], body)
        made = sweeps.gradient(whole, read["includeSoftmaxGradient"], read["zeroInfinity"])
        cast_with_output(graph, made, gradient, body)
    note_host(call.prog, _host(call, (loss, gradient), read))
    return loss, gradient


def _loss(call: CtcOfProbabilities | CtcOfLogits, function: str) -> Tensor:
    read = _check(function, call)
    graph, plan = call.graph, call.plan
    with graph.scope(call.name):
        loss = _losses(graph, plan, plan.out_type, "loss")
    with _library_call(call, function, (loss,)) as body:
        sweeps = Sweeps(graph, plan, call.blank_class, _logarithms(call, body), False, body)
        sweeps.run()
        _finish(graph, sweeps, loss, read["zeroInfinity"], body)
    note_host(call.prog, _host(call, (loss,), read))
    return loss


def _host(call: CtcOfProbabilities | CtcOfLogits, results: tuple[Tensor, ...], read: dict[str, Any]) -> Sequence:
    """The steps of a host: logarithms, one vertex for each sequence, and results in their type."""
    graph, steps = call.graph, Sequence()
    given = _logarithms(call, steps)
    made = [t if t.dtype == f32 else graph.variable(f32, t.shape, name="host", map="linear") for t in results]
    vertices = host_ctc(
        graph,
        (given.data, given.labels, given.times, given.counts),
        made,
        blank=call.blank_class,
        softmax=read["includeSoftmaxGradient"],
        zero_infinity=read["zeroInfinity"],
    )
    steps.add(vertices)
    for source, target in zip(made, results, strict=True):
        if source is not target:
            cast_with_output(graph, source, target, steps)
    return steps


def _library_call(
    call: CtcOfProbabilities | CtcOfLogits, function: str, outputs: tuple[Tensor, ...]
) -> AbstractContextManager[Sequence]:
    given = call.operands
    inputs = (given.data, given.labels, given.times, given.counts)
    return call.graph.library_call(
        call.prog, f"popnn.ctc.{function}", inputs=inputs, outputs=outputs, debug_name=call.name
    )


def _losses(graph: Graph, plan: Plan, dtype: ElementType, name: str) -> Tensor:
    return graph.map_rows(graph.variable(dtype, (plan.batch,), name=name), plan.part_tiles[:, 0].tolist())


def _logarithms(call: CtcOfProbabilities | CtcOfLogits, body: Sequence) -> Operands:
    """The operands with log-probabilities in f32."""
    graph, given = call.graph, call.operands
    data = given.data if given.data.dtype == f32 else cast(graph, given.data, f32, body)
    return replace(given, data=log_softmax(graph, data, body) if isinstance(call, CtcOfLogits) else data)


def _finish(graph: Graph, sweeps: Sweeps, loss: Tensor, zero_infinity: bool, body: Sequence) -> Tensor:
    """Append the losses; returns them in f32, with infinite ones."""
    whole = _losses(graph, sweeps.plan, f32, "loss/all")
    shown = loss if loss.dtype == f32 else _losses(graph, sweeps.plan, f32, "loss/shown")
    sweeps.finish(whole, shown, zero_infinity)
    if shown is not loss:
        body.add(Copy(cast(graph, shown, loss.dtype, body), loss))
    return whole


def _check(function: str, call: CtcOfProbabilities | CtcOfLogits) -> dict[str, Any]:
    given, plan, out_type, blank = call.operands, call.plan, call.out_type, call.blank_class
    read = read_options(function, call.options, OPTIONS)
    data, labels, lengths = given.data, given.labels, (given.times, given.counts)
    if data.dtype != plan.in_type or as_element_type(out_type) != plan.out_type:
        wanted = f"{plan.in_type} data and {plan.out_type} results, as planned"
        raise TypeMismatchError(f"{function} takes {wanted}, got {data!r} and {as_element_type(out_type)}")
    for operand in (labels, *lengths):
        if operand.dtype != u32:
            raise TypeMismatchError(f"{function} takes u32 labels and lengths, got {operand!r}")
    if data.shape != (plan.steps, plan.batch, plan.classes):
        raise TensorError(f"{function}: data [time, batch, classes] {data!r} does not fit the plan, {plan}")
    if labels.shape != (plan.batch, plan.labels):
        raise TensorError(f"{function}: labels [batch, labels] {labels!r} do not fit the plan, {plan}")
    for operand in lengths:
        if operand.shape != (plan.batch,):
            raise TensorError(
                f"{function}: lengths of {counted(plan.batch, 'sequence')} are [{plan.batch}], got {operand!r}"
            )
    if not 0 <= blank < plan.classes:
        raise InvalidOptionError(f"{function}: the blank class {blank} is none of the {counted(plan.classes, 'class')}")
    return read
