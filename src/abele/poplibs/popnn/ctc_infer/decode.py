"""The functions that decode: arguments are checked, and a beam search is appended as one library call."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor
from abele.numerics import u32
from abele.poplibs.popnn.ctc_infer.plan import OPTIONS, Plan
from abele.poplibs.popnn.ctc_infer.search import Decoded, Search
from abele.poplibs.popnn.softmax import log_softmax
from abele.poplibs.poputil.options import Options, read_options
from abele.poplibs.poputil.record_calls import takes_fields_of
from abele.words import counted


@dataclass(frozen=True)
class SearchOfProbabilities:
    """A call on log-probabilities; fields as :func:`beam_search_decoder_log_probabilities` says."""

    graph: Graph
    log_probs: Tensor
    data_lengths: Tensor
    prog: Sequence
    blank_class: int
    beam_width: int
    top_paths: int
    plan: Plan
    _: KW_ONLY
    options: Options = None
    name: str = ""


@dataclass(frozen=True)
class SearchOfLogits:
    """A call on logits; other fields as :func:`beam_search_decoder_log_probabilities` says."""

    graph: Graph
    logits: Tensor
    data_lengths: Tensor
    prog: Sequence
    blank_class: int
    beam_width: int
    top_paths: int
    plan: Plan
    _: KW_ONLY
    options: Options = None
    name: str = ""


@takes_fields_of(SearchOfProbabilities, name="beam_search")
def beam_search_decoder_log_probabilities(call: SearchOfProbabilities) -> Decoded:
    """The most likely labels of sequences of log-probabilities, most likely first.

    Args:
        graph: The graph.
        log_probs: Natural logarithms of the classes' probabilities, [time, batch, classes], f32 or f16.
        data_lengths: Valid steps of each sequence, u32 [batch]; what comes later is not read.
        prog: Program that the call is appended to.
        blank_class: The class that stands for no label.
        beam_width: Beams that are kept after every step.
        top_paths: Label sequences that are returned, at most ``beam_width``.
        plan: From :func:`~abele.poplibs.popnn.ctc_infer.plan`, for these sizes.
        options: ``partialsType`` (float), ``availableMemoryProportion``.
        name: Name of the call.

    Returns:
        Natural logarithm of the probability of each label sequence, as far as its alignments stayed in the beam,
        [batch, paths], in the type of the data; −inf where there are fewer sequences than paths. Their lengths, u32
        [batch, paths]. The labels, u32 [batch, paths, time]; beyond the length stands the blank class.

    Raises:
        TensorError: Shapes that do not fit each other or the plan.
        TypeMismatchError: Elements of other types.
        InvalidOptionError: A blank class that there is not, more paths than beams, a width that is not the plan's, an
            option or value that there is not.
    """
    return _decode(call, "beam_search_decoder_log_probabilities", call.log_probs)


@takes_fields_of(SearchOfLogits, name="beam_search")
def beam_search_decoder_logits(call: SearchOfLogits) -> Decoded:
    """As :func:`beam_search_decoder_log_probabilities`, of logits: a log-softmax over the classes comes first."""
    return _decode(call, "beam_search_decoder_logits", call.logits)


def _decode(call: SearchOfProbabilities | SearchOfLogits, function: str, data: Tensor) -> Decoded:
    graph, lengths = call.graph, call.data_lengths
    read_options(function, call.options, OPTIONS)
    _check_operands(function, data, lengths, call.plan)
    _check_numbers(function, call)
    search = Search(graph, call.plan, call.blank_class)
    with graph.scope(call.name):
        results = search.create_results(call.top_paths)
    library = f"popnn.ctc_infer.{function}"
    with graph.library_call(call.prog, library, inputs=(data, lengths), outputs=results, debug_name=call.name) as body:
        if isinstance(call, SearchOfLogits):
            data = log_softmax(graph, data, body)
        search.run(body, data, lengths)
        search.read(body, results)
    return results


def _check_operands(function: str, data: Tensor, lengths: Tensor, plan: Plan) -> None:
    if data.dtype != plan.dtype or lengths.dtype != u32:
        wanted = f"{plan.dtype} data, as planned, and u32 lengths"
        raise TypeMismatchError(f"{function} takes {wanted}, got {data!r} and {lengths!r}")
    if data.shape != (plan.steps, plan.batch, plan.classes):
        raise TensorError(f"{function}: data [time, batch, classes] {data!r} does not fit the plan, {plan}")
    if lengths.shape != (plan.batch,):
        raise TensorError(
            f"{function}: lengths of {counted(plan.batch, 'sequence')} are [{plan.batch}], got {lengths!r}"
        )


def _check_numbers(function: str, call: SearchOfProbabilities | SearchOfLogits) -> None:
    plan, blank, width, paths = call.plan, call.blank_class, call.beam_width, call.top_paths
    if not 0 <= blank < plan.classes:
        raise InvalidOptionError(f"{function}: the blank class {blank} is none of the {counted(plan.classes, 'class')}")
    if width != plan.width:
        raise InvalidOptionError(f"{function}: the plan is for {counted(plan.width, 'beam')}, got a width of {width}")
    if not 1 <= paths <= width:
        raise InvalidOptionError(
            f"{function}: of {counted(width, 'beam')} 1 to {width} paths can be returned, got {paths}"
        )
