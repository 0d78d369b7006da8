"""``outline``: equal stretches of a network become calls of one function.

A model's repeated layers are recorded one after the other. Each op gets a token that says what it is apart from which
values it reads; stretches with equal tokens are candidates. They are found in a suffix array of the tokens: a run of
``k`` neighbouring suffixes that share ``n`` tokens is a stretch of ``n`` ops at ``k`` places. The candidate that leaves
the fewest ops wins, then the next among what is left: tokens ``a b c a b c d`` become 2 calls of ``a b c``, and ``d``.
Each IPU has its own copy of a function, so it is done IPU by IPU, then for what several IPUs have once each. The first
candidate is chosen with those that follow it: half a layer at the end of a stage makes that half the most frequent
stretch, though what it leaves of the layers is too short for functions, and whole layers first leave fewer ops.
Before a candidate is taken, its occurrences are made into
isolated blocks and compared: only those that are equal as blocks (the same flow between ops, the same constants) become
calls, so tokens may be coarse without harm.

Random ops are equal if their modifiers differ by one number for the whole stretch, which the call adds again. The
module path that the ops of an occurrence share is taken off the function and said by the call, so that each layer keeps
its own name in reports. What all layers read of inputs alone, such as a mask, is mostly made where the first of them
asks for it: it is moved out of that layer, to the begin of its place, so that the first layer is like the others.
Aligning candidates with layers needs no care: of all rotations of a repeated stretch, the one
that starts where the first layer starts occurs once more than the others.
Calls that a network has already make no code, as views make none: 24 calls of a layer stay 24 calls, and do not become
3 of a function of 8, which would hold the weights of 8 layers as its own.

Tried and worse: comparing stretches module by module, by the user's source (one class used in two ways is two
functions, unrolled Python loops are none); hashing blocks of fixed sizes (finds a multiple of a layer as readily).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from abele.graph.debug import DebugRecord
from abele.network.ir import (
    HERE,
    SAME_ELEMENTS,
    FrozenDict,
    Network,
    NetworkFunction,
    NetworkOp,
    OpBlock,
    Place,
    Stage,
    Value,
    is_spread,
    needed,
)
from abele.network.ir.network import attributes_key, block_key
from abele.network.ops.control import split_label
from abele.network.passes.base import Pass

Stretch = tuple[int, int]
"""First op and number of ops."""
_NO_CODE = SAME_ELEMENTS | {"call"}
_FIRST = 8
"""Candidates that are tried as the first. Chosen."""


@dataclass(frozen=True)
class Outline(Pass):
    """Turn stretches of ops that occur more than once into calls of one function.

    Attributes:
        min_ops: Shortest stretch that is worth a function.
        min_calls: Fewest occurrences.
        scope: Begin of all names of functions, for networks that are joined afterwards.
    """

    name: ClassVar[str] = "outline"
    min_ops: int = 8
    min_calls: int = 2
    scope: str = ""

    def run(self, net: Network) -> Network:
        """The network with calls, with the same results in the same order."""
        ops, shared = _shared_first(net)
        found = _Outlining(replace(net, ops=ops), self, shared).run()
        return net if found is None else replace(net, ops=found)


class _Outlining:
    """One run of the pass: which ops are taken already, which stay ``alone``, and the functions so far."""

    def __init__(self, net: Network, settings: Outline, alone: Set[NetworkOp]) -> None:
        self._net = net
        self._alone = alone
        self._settings = settings
        self._ops = net.ops
        self._taken = [False] * len(net.ops)
        self._calls: dict[int, tuple[int, NetworkOp]] = {}
        self._readers = _readers(net)
        self._names: set[str] = set()
        self._functions: dict[Any, NetworkFunction] = {}

    def run(self) -> tuple[NetworkOp, ...] | None:
        tokens, numbers = _apart(self._ops, _tokens(self._ops), self._alone)
        found = _candidates(tokens, self._settings.min_ops)
        placed = [[(numbers[start], length) for start, length in stretches] for stretches in found]
        candidates = [s for s in placed if self._without_calls(s[0]) >= self._settings.min_ops]
        for ipu in dict.fromkeys(map(_ipu, self._ops)):
            here = [[s for s in stretches if _ipu(self._ops[s[0]]) == ipu] for stretches in candidates]
            for stretches in self._best_order([s for s in here if len(s) >= self._settings.min_calls]):
                self._take(stretches)
        for stretches in candidates:
            self._take(stretches)
        return tuple(self._rewritten()) if self._calls else None

    def _best_order(self, candidates: Sequence[Sequence[Stretch]]) -> Sequence[Sequence[Stretch]]:
        """Candidates, each after those that save more, but for the first: with it, all together save most."""
        ranked = sorted(candidates, key=self._less, reverse=True)
        orders = [[ranked[first], *ranked[:first], *ranked[first + 1 :]] for first in range(min(_FIRST, len(ranked)))]
        return max(orders, key=self._saved, default=[])

    def _saved(self, order: Sequence[Sequence[Stretch]]) -> int:
        """Ops less, where candidates are taken in order."""
        taken, saved = bytearray(len(self._ops)), 0
        for stretches in order:
            free = [(start, length) for start, length in stretches if not any(taken[start : start + length])]
            if len(free) >= self._settings.min_calls:
                saved += self._less(free)
                for start, length in free:
                    taken[start : start + length] = b"\1" * length
        return saved

    def _less(self, stretches: Sequence[Stretch]) -> int:
        """Ops less by calls of equal stretches; views and calls are none, as they make no code."""
        start, length = stretches[0]
        return _ops_less(len(stretches), sum(op.kind not in _NO_CODE for op in self._ops[start : start + length]))

    def _without_calls(self, stretch: Stretch) -> int:
        """Ops of a stretch other than calls."""
        start, length = stretch
        return sum(op.kind != "call" for op in self._ops[start : start + length])

    def _rewritten(self) -> Iterator[NetworkOp]:
        place = 0
        while place < len(self._ops):
            length, op = self._calls.get(place, (1, self._ops[place]))
            yield op
            place += length

    def _take(self, stretches: Sequence[Stretch]) -> None:
        """Make calls of those of ``stretches`` that are free and equal as blocks."""
        # Candidates come best first; one that a better one has broken is skipped.
        free = [s for s in stretches if not any(self._taken[s[0] : s[0] + s[1]]) and self._is_in_one_place(s)]
        if len(free) < self._settings.min_calls:
            return
        leaving = self._leaving(free)
        groups: dict[Any, list[_Occurrence]] = {}
        for start, length in free:
            occurrence = _Occurrence.of(self._ops[start : start + length], start, leaving)
            # Equal tokens, but perhaps another flow between the ops: only equal blocks share a function.
            groups.setdefault(block_key(occurrence.block), []).append(occurrence)
        for occurrences in groups.values():
            if len(occurrences) >= self._settings.min_calls:
                self._call(occurrences)

    def _is_in_one_place(self, stretch: Stretch) -> bool:
        """True if a call can have the place of all ops; the ops of a function are wherever it is called."""
        start, length = stretch
        ops = self._ops[start : start + length]
        return len({op.place for op in ops} - {None}) <= 1 and not any(map(is_spread, ops))

    def _leaving(self, stretches: Sequence[Stretch]) -> list[tuple[int, int]]:
        """Results of a stretch's ops, as (op, result), that something outside reads in any of the occurrences."""
        found: set[tuple[int, int]] = set()
        for start, length in stretches:
            for number, op in enumerate(self._ops[start : start + length]):
                for position, value in enumerate(op.outputs):
                    if any(not start <= reader < start + length for reader in self._readers.get(value, ())):
                        found.add((number, position))
        return sorted(found)

    def _call(self, occurrences: Sequence[_Occurrence]) -> None:
        first = occurrences[0]
        key = block_key(first.block)
        if key not in self._functions:
            self._functions[key] = NetworkFunction(self._name(first.path), first.block, first.num_random)
        function = self._functions[key]
        for occurrence in occurrences:
            attrs = FrozenDict({"function": function, "path": occurrence.path, "random": occurrence.random})
            debug = DebugRecord("", occurrence.path)
            call = NetworkOp("call", occurrence.inputs, occurrence.outputs, attrs, debug)
            self._calls[occurrence.start] = occurrence.length, call
            for place in range(occurrence.start, occurrence.start + occurrence.length):
                self._taken[place] = True

    def _name(self, path: str) -> str:
        """A name for a function, from the module path of its first call: ``encoder.layers`` of ``encoder/layers/0``."""
        parts = [p for p in (*self._settings.scope.split("/"), *path.split("/")) if p.isidentifier()]
        stem = ".".join(parts) or "repeated"
        name, number = stem, 2
        while name in self._names:
            name, number = f"{stem}.{number}", number + 1
        self._names.add(name)
        return name


@dataclass(frozen=True)
class _Occurrence:
    """A stretch as an isolated block, and what a call in its place reads and makes."""

    start: int
    length: int
    block: OpBlock
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    path: str
    random: int
    num_random: int

    @classmethod
    def of(cls, ops: Sequence[NetworkOp], start: int, leaving: Sequence[tuple[int, int]]) -> _Occurrence:
        modifiers = [op.attrs[name] for op in ops for name in ("modifier", "random") if name in op.attrs]
        random = min(modifiers, default=0)
        path = _common_path([op.debug.path for op in ops if op.kind != "constant"])
        inside: dict[Value, Value] = {}
        entered: dict[Value, Value] = {}
        made: list[NetworkOp] = []
        for op in ops:
            for value in op.inputs:
                if value not in inside and value not in entered:
                    entered[value] = Value(value.shape, value.dtype)
            # The stretch's own value, or a parameter for one from outside, in order of first use.
            inputs = tuple(inside.get(v) or entered[v] for v in op.inputs)
            outputs = tuple(replace(v, place=HERE) for v in op.outputs)
            inside |= zip(op.outputs, outputs, strict=True)
            made.append(replace(op, inputs=inputs, outputs=outputs, attrs=_from(op, random), debug=_under(op, path)))
        outputs = tuple(ops[number].outputs[position] for number, position in leaving)
        block = OpBlock(tuple(entered.values()), tuple(made), tuple(inside[v] for v in outputs))
        count = max(modifiers, default=-1) - random + 1 if modifiers else 0
        return cls(
            start=start,
            length=len(ops),
            block=block,
            inputs=tuple(entered),
            outputs=outputs,
            path=path,
            random=random,
            num_random=count,
        )


def _from(op: NetworkOp, random: int) -> FrozenDict[str, Any]:
    """The attributes of an op with modifiers counted from ``random``."""
    names = {"modifier", "random"} & op.attrs.keys()
    return FrozenDict({**op.attrs, **{n: op.attrs[n] - random for n in names}}) if names else op.attrs


def _under(op: NetworkOp, path: str) -> DebugRecord:
    """Origin of an op, without the module path of its call."""
    debug = op.debug
    if not path:
        return debug
    module, kind = split_label(debug.text)
    label = module.removeprefix(path.replace("/", ".")).lstrip(".") + kind
    inner = debug.path.removeprefix(path).lstrip("/") if debug.path.startswith(path) else debug.path
    return DebugRecord(debug.name, inner, debug.file, debug.line, label)


def _common_path(paths: Sequence[str]) -> str:
    """The scopes that all paths start with."""
    shortest = min((p.split("/") for p in paths), key=len, default=[])
    length = len(shortest)
    for path in paths:
        parts = path.split("/")
        while parts[:length] != shortest[:length]:
            length -= 1
    return "/".join(shortest[:length])


def _shared_first(net: Network) -> tuple[tuple[NetworkOp, ...], set[NetworkOp]]:
    """The ops, beginning with what is computed of inputs alone for ops that occur several times; and these.

    They come first of their place, behind the constants that they read. Views of inputs stay where they are: each layer
    makes its own.
    """
    known = {*net.inputs, *(op.output for op in net.ops if op.kind == "constant")}
    computed: set[Value] = set()
    apart: set[NetworkOp] = set()
    for op in net.ops:
        if op.inputs and known.issuperset(op.inputs) and not op.blocks and "modifier" not in op.attrs:
            apart.add(op)
            known.update(op.outputs)
            if op.kind not in SAME_ELEMENTS or computed.issuperset(op.inputs):
                computed.update(op.outputs)
    tokens = _tokens(net.ops)
    often = Counter(tokens)
    readers = (op for op, token in zip(net.ops, tokens, strict=True) if op not in apart and often[token] > 1)
    wanted = {v for op in readers for v in op.inputs if v in computed}
    taken = needed((op for op in net.ops if op in apart or op.kind == "constant"), wanted)
    moved = [op for op in taken if op.kind != "constant"]
    if not moved:
        return net.ops, set()
    leading = set(taken)
    makers = {v: op for op in taken for v in op.outputs}
    ahead: dict[Place | None, list[NetworkOp]] = {}
    for op in moved:
        ahead.setdefault(op.place, []).append(op)
    made: dict[NetworkOp, None] = {}

    def append(op: NetworkOp) -> None:
        """The op, behind what it reads of those that are moved, at this place or another."""
        for v in op.inputs:
            if v in makers and makers[v] not in made:
                append(makers[v])
        made[op] = None

    for op in net.ops:
        if op.kind != "constant":
            for early_op in ahead.pop(op.place, ()):
                append(early_op)
        if op not in leading:
            append(op)
    return tuple(made), set(moved)


def _readers(net: Network) -> dict[Value, list[int]]:
    """The ops that read each value, by number; what leaves the network has a reader past the last."""
    found: dict[Value, list[int]] = {}
    for number, op in enumerate(net.ops):
        for value in op.inputs:
            found.setdefault(value, []).append(number)
    for value in (*net.leaves, *net.wide):
        found.setdefault(value, []).append(len(net.ops))
    return found


def _tokens(ops: Sequence[NetworkOp]) -> list[int]:
    """A number for each op; equal numbers for ops that may be each other's counterpart."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(_token(op), len(numbers)) for op in ops]


def _apart(ops: Sequence[NetworkOp], tokens: Sequence[int], alone: Set[NetworkOp]) -> tuple[list[int], list[int]]:
    """Tokens, cut where no repeated stretch may go across.

    A token that occurs once stands wherever the place changes, and for each checkpoint and each op of ``alone``.

    Returns:
        The tokens, and for each the number of its op.
    """
    made, numbers = list[int](), list[int]()
    place = None
    for number, (op, token) in enumerate(zip(ops, tokens, strict=True)):
        if op.place is not None and op.place != place:
            if place is not None:
                made.append(-1 - number)
                numbers.append(number)
            place = op.place
        made.append(-1 - len(ops) - number if op.kind == "keep" or op in alone else token)
        numbers.append(number)
    return made, numbers


def _token(op: NetworkOp) -> Any:
    attrs = {name: value for name, value in op.attrs.items() if name not in ("modifier", "random", "path")}
    made = tuple((v.type, v.stage) for v in op.outputs)
    read = tuple(v.type for v in op.inputs)
    blocks = tuple(map(block_key, op.regions))
    # Updates are never outlined: a fresh object is equal to no other token.
    if any(stage == Stage.UPDATE for _, stage in made):
        return object()
    return op.kind, attributes_key(attrs), made, read, blocks


def _candidates(tokens: Sequence[int], min_ops: int) -> list[list[Stretch]]:
    """Stretches with equal tokens that do not overlap, in order of how few ops they leave."""
    found: dict[tuple[int, int], tuple[int, list[Stretch]]] = {}
    for length, places in _repeats(tokens):
        if length < min_ops:
            continue
        apart: list[Stretch] = []
        for place in sorted(places):
            if not apart or place >= apart[-1][0] + length:
                apart.append((place, length))
        saved = _ops_less(len(apart), length)
        if len(apart) > 1 and saved > 0:
            found[apart[0]] = max(found.get(apart[0], (0, [])), (saved, apart), key=lambda f: f[0])
    ranked = sorted(found.values(), key=lambda f: (-f[0], f[1][0]))
    return [stretches for _, stretches in ranked]


def _ops_less(count: int, length: int) -> int:
    """Ops less by so many calls of a stretch: those of all but one, each of which becomes one op."""
    return (count - 1) * (length - 1) - count


def _ipu(op: NetworkOp) -> int:
    return 0 if op.place is None else op.place.ipu


def _repeats(tokens: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Every stretch that cannot grow to the right without losing a place: its length, and where it occurs.

    Suffixes are sorted by doubling; runs of the common prefixes of neighbours are read off with a stack.
    """
    order = _suffix_order(tokens)
    shared = [_common_prefix(tokens, a, b) for a, b in pairwise(order)] + [0]
    open_runs: list[tuple[int, int]] = []
    for place, length in enumerate(shared):
        start = place
        # The run of suffixes with that common prefix ends here, so all its places are known.
        while open_runs and open_runs[-1][1] > length:
            start, ended = open_runs.pop()
            yield ended, order[start : place + 1]
        if length and (not open_runs or open_runs[-1][1] < length):
            open_runs.append((start, length))


def _suffix_order(tokens: Sequence[int]) -> list[int]:
    """The suffixes of a sequence by their start, sorted."""
    size, width, rank = len(tokens), 1, list(tokens)
    while True:
        keys = [(rank[i], rank[i + width] if i + width < size else -1) for i in range(size)]
        # Ranks by the first 2 · width tokens, from ranks by the first width.
        numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
        rank = [numbers[key] for key in keys]
        if len(numbers) == size or width >= size:
            return sorted(range(size), key=rank.__getitem__)
        width *= 2


def _common_prefix(tokens: Sequence[int], first: int, second: int) -> int:
    length, end = 0, len(tokens) - max(first, second)
    while length < end and tokens[first + length] == tokens[second + length]:
        length += 1
    return length
