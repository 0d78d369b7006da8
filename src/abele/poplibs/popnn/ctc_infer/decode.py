"""The functions that decode: arguments are checked, and a beam search is appended as one library call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy, Execute, Graph, Sequence, Tensor
from abele.numerics import ElementType, f32, i32, u32
from abele.poplibs.popnn.ctc_infer.codelets import LOW, extend_codelet, read_codelet, select_codelet
from abele.poplibs.popnn.ctc_infer.plan import OPTIONS, Plan, new_data
from abele.poplibs.popnn.softmax import log_softmax
from abele.poplibs.popops.programs.loops import counted_loop
from abele.poplibs.poputil.options import Options, read_options
from abele.poplibs.poputil.record_calls import takes_fields_of
from abele.words import counted

# Beam search with CTC's rules: repeated symbols are one label, unless a blank is between them; blanks are none.
#
# Every time step is two supersteps. Each tile extends all beams of its sequence by its classes and keeps the best
# extensions; then one tile of each sequence chooses the next beams from those and from the beams that stay.
#
# A prefix has one beam, though many alignments lead to it, since scores of alignments that give the same labels are
# added (``parent`` finds the beam that an extension would repeat). Keeping the best w beams in every step is not
# exact, but what is dropped is less likely than everything that is kept. Extensions are chosen in two stages, because
# the best w of all are among the best w of each part; so each tile sends w of them instead of w times its classes.
#
# Example: with 4 beams and 100 classes in 5 parts, each tile extends the beams by its 20 classes and sends 4 of the 80
# extensions. One tile then chooses the next 4 beams from these 20 and the beams that stay.

Decoded = tuple[Tensor, Tensor, Tensor]
"""Log-probabilities [batch, paths], lengths [batch, paths], labels [batch, paths, time]."""


@dataclass
class Search:
    """One search: its beams, and the steps that move them on.

    Attributes:
        graph: The graph.
        plan: Split of the search over tiles.
        blank: The class that stands for no label.
        beams: State of every beam, [batch, …], by field of the vertices.
        found: The best extensions of every part of the classes, [batch, parts, …].
        scratch: Intermediate values of the choice, [batch, …].
    """

    graph: Graph
    plan: Plan
    blank: int
    beams: dict[str, Any] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    scratch: dict[str, Any] = field(default_factory=dict)

    def create_results(self, paths: int) -> Decoded:
        """Tensors for the results."""
        shape = (self.plan.batch, paths)
        return (
            self._variable(self.plan.dtype, shape, "probabilities"),
            self._variable(u32, shape, "lengths"),
            self._variable(u32, (*shape, self.plan.steps), "labels"),
        )

    def run(self, body: Sequence, data: Tensor, lengths: Tensor) -> None:
        """Append the search over all steps of ``data`` [time, batch, classes]."""
        work = new_data(self.graph, self.plan, "data")
        body.add(Copy(data, work))
        self._start(body)
        self._create()
        body.add(counted_loop(self.graph, 0, self.plan.steps, 1, lambda at: self._step(work, lengths, at), "step"))

    def read(self, body: Sequence, results: Decoded) -> None:
        """Append the superstep that writes the results."""
        batch = self.plan.batch
        beams = {n: self.beams[n] for n in ("total", "node", "lengths", "before", "labels")}
        cs = self.graph.compute_set("read")
        cs.vertices(
            read_codelet(self.plan.dtype),
            tile=self._tiles(np.zeros(1)),
            score=results[0],
            sizes=results[1],
            paths=results[2].reshape((batch, results[2].size // batch)),
            steps=self.plan.steps,
            void=self.blank,
            **beams,
        )
        body.add(Execute(cs))

    def _tiles(self, part: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Tiles of some parts of every sequence, int64[batch · parts]."""
        # Sequence after sequence, each on as many tiles as there are parts.
        first = np.arange(self.plan.batch)[:, None] * len(self.plan.shares)
        return ((first + np.asarray(part, np.int64)) % self.graph.num_tiles).ravel()

    def _variable(self, dtype: ElementType, shape: tuple[int, ...], name: str) -> Tensor:
        """A tensor [batch, …], each sequence on the tile that chooses its beams."""
        made = self.graph.variable(dtype, shape, name=name)
        return self.graph.map_rows(made, self._tiles(np.zeros(1)).tolist())

    def _start(self, body: Sequence) -> None:
        """One empty beam, of probability 1."""
        width, none = self.plan.width, [LOW] * self.plan.width
        values: Mapping[str, tuple[ElementType, list[float]]] = {
            "blank": (f32, [0.0, *none[1:]]),
            "label": (f32, none),
            "total": (f32, [0.0, *none[1:]]),
            "last": (i32, [-1] * width),
            "parent": (i32, [-1] * width),
            "node": (i32, [0.0] * width),
            "lengths": (i32, [0.0] * width),
        }
        for name, (dtype, first) in values.items():
            start = self.graph.map(self.graph.constant(dtype, (len(first),), first, name=f"{name}/start"), 0)
            made = self._variable(dtype, (self.plan.batch, len(first)), name)
            body.add(Copy(start.expand_dims(0).broadcast_to(made.shape), made))
            self.beams[name] = made

    def _create(self) -> None:
        """Tensors that the steps fill."""
        batch, width, parts = self.plan.batch, self.plan.width, len(self.plan.shares)
        for name in ("before", "labels"):
            self.beams[name] = self._variable(i32, (batch, 1 + width * self.plan.steps), name)
        extensions = (("score", f32, width), ("beam", i32, width), ("symbol", i32, width), ("own", f32, width + 1))
        for name, dtype, size in extensions:
            made = self.graph.variable(dtype, (batch * parts, size), name=name)
            self.graph.map_rows(made, self._tiles(np.arange(parts)).tolist())
            self.found[name] = made.reshape((batch, parts, size))
        between = (("stay", f32, 3 * width), ("chosen", f32, 2 * width), ("head", i32, parts))
        for name, dtype, size in (*between, *((n, i32, width) for n in ("taken", "origin", "added"))):
            self.scratch[name] = self._variable(dtype, (batch, size), name)

    def _step(self, data: Tensor, lengths: Tensor, at: Tensor) -> Sequence:
        """One time step: extend, then choose."""
        batch, steps = self.plan.batch, self.plan.steps
        extend, select = self.graph.compute_set("extend"), self.graph.compute_set("select")
        for parts, first, size in self._equal_shares():
            number = batch * len(parts)
            classes = data[:, :, first[0] : first[-1] + size].transpose((1, 2, 0))
            known = {n: self.beams[n].expand_dims(1) for n in ("blank", "total", "last", "parent")}
            beams = {n: t.broadcast_to((batch, len(parts), t.shape[2])) for n, t in known.items()}
            found = {n: t[:, parts[0] : parts[-1] + 1] for n, t in self.found.items()}
            extend.vertices(
                extend_codelet(self.plan.dtype),
                tile=self._tiles(parts),
                data=classes.reshape((number, size * steps)),
                at=at.broadcast_to((number,)),
                first=np.tile(first, batch),
                steps=steps,
                void=self.blank,
                **{n: t.reshape((number, t.shape[2])) for n, t in (beams | found).items()},
            )
        found = {n: t.reshape((batch, t.size // batch)) for n, t in self.found.items()}
        operands = self.beams | found | self.scratch
        tiles, every = self._tiles(np.zeros(1)), at.broadcast_to((batch,))
        select.vertices(select_codelet(), tile=tiles, at=every, length=lengths, **operands)
        return Sequence(Execute(extend), Execute(select))

    def _equal_shares(self) -> Iterator[tuple[list[int], list[int], int]]:
        """Parts with equally many classes: their numbers, first classes and size."""
        shares = self.plan.shares
        for size in dict.fromkeys(s for _, s in shares):
            parts = [p for p, share in enumerate(shares) if share[1] == size]
            yield parts, [shares[p][0] for p in parts], size


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
