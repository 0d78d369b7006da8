"""The functions that decode: arguments are checked, and a beam search is appended as one library call."""

from __future__ import annotations

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor
from abele.numerics import u32
from abele.poplibs.popnn.ctc_infer.plan import OPTIONS, Plan
from abele.poplibs.popnn.ctc_infer.search import Decoded, Search
from abele.poplibs.popnn.softmax import log_softmax
from abele.poplibs.poputil.options import Options, read_options
from abele.words import counted


def beam_search_decoder_log_probabilities(
    graph: Graph,
    log_probs: Tensor,
    data_lengths: Tensor,
    prog: Sequence,
    blank_class: int,
    beam_width: int,
    top_paths: int,
    plan: Plan,
    *,
    options: Options = None,
    name: str = "beam_search",
) -> Decoded:
    """The most likely labels of sequences of log-probabilities, most likely first.

    Args:
        graph: The graph.
        log_probs: Natural logarithms of the classes' probabilities, [time, batch, classes], f32 or f16.
        data_lengths: Valid steps of each sequence, u32 [batch]; what comes later is not read.
        prog: Where the call is appended.
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
    return _decode(
        graph,
        log_probs,
        data_lengths,
        prog=prog,
        blank=blank_class,
        width=beam_width,
        paths=top_paths,
        plan=plan,
        options=options,
        name=name,
        is_logits=False,
    )


def beam_search_decoder_logits(
    graph: Graph,
    logits: Tensor,
    data_lengths: Tensor,
    prog: Sequence,
    blank_class: int,
    beam_width: int,
    top_paths: int,
    plan: Plan,
    *,
    options: Options = None,
    name: str = "beam_search",
) -> Decoded:
    """As :func:`beam_search_decoder_log_probabilities`, of logits: a log-softmax over the classes comes first."""
    return _decode(
        graph,
        logits,
        data_lengths,
        prog=prog,
        blank=blank_class,
        width=beam_width,
        paths=top_paths,
        plan=plan,
        options=options,
        name=name,
        is_logits=True,
    )


def _decode(
    graph: Graph,
    data: Tensor,
    lengths: Tensor,
    prog: Sequence,
    blank: int,
    width: int,
    paths: int,
    plan: Plan,
    options: Options,
    name: str,
    is_logits: bool,
) -> Decoded:
    function = "beam_search_decoder_logits" if is_logits else "beam_search_decoder_log_probabilities"
    read_options(function, options, OPTIONS)
    _check_operands(function, data, lengths, plan)
    _check_numbers(function, blank, width, paths, plan)
    search = Search(graph, plan, blank)
    with graph.scope(name):
        results = search.create_results(paths)
    library = f"popnn.ctc_infer.{function}"
    call = graph.library_call(prog, library, inputs=(data, lengths), outputs=results, debug_name=name)
    with call as body:
        if is_logits:
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


def _check_numbers(function: str, blank: int, width: int, paths: int, plan: Plan) -> None:
    if not 0 <= blank < plan.classes:
        raise InvalidOptionError(f"{function}: the blank class {blank} is none of the {counted(plan.classes, 'class')}")
    if width != plan.width:
        raise InvalidOptionError(f"{function}: the plan is for {counted(plan.width, 'beam')}, got a width of {width}")
    if not 1 <= paths <= width:
        raise InvalidOptionError(
            f"{function}: of {counted(width, 'beam')} 1 to {width} paths can be returned, got {paths}"
        )
