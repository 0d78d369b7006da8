"""Issue slots of the code of a vertex, block by block.

Every LLVM instruction is taken for the instructions that the tile's compiler would make of it, with the costs of
``codelet.slots``, one after the other as in Python codelets (``codelet.straight_code``). Vector instructions cost one
slot for each 64 bits. What the tile does for free costs nothing: addresses that move with a loop, conversions between
widths of an index, the test of a counted loop, which its branch includes. Constants cost what makes them, once per
block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from abele.codelet import slots
from abele.codelet.costs import StraightCode
from abele.codelet.cpp.blocks import BasicBlock, FlowGraph, Instruction, NaturalLoop
from abele.codelet.cpp.early_exits import LOOP
from abele.codelet.early_exits import END
from abele.expr import TABLE, Slots

# Addresses of a loop that are of one row.
#
# LLVM's code spells an address out as steps from a pointer, by an index that moves and by distances that do not. Two
# addresses of a row share the pointer that comes into the loop; the other steps tell them apart. Pointers that are
# made by equal instructions before the loop are one.


class TouchedPlaces:
    """Places that loops touch in an iteration.

    Args:
        blocks: The code.
    """

    def __init__(self, blocks: FlowGraph) -> None:
        self.blocks = blocks

    def shared(self, loop: NaturalLoop, inside: set[str], affine: set[str]) -> bool:
        """True if a loop touches some row at more than one place that moves with it.

        Args:
            loop: The loop.
            inside: Names of all values made in it.
            affine: Those that move by an invariant each time round.
        """
        found: dict[str, set[tuple[str, ...]]] = {}
        for pointer in self._pointers(loop):
            if pointer in inside and self._moves(pointer, inside, affine):
                row, way = self._way(pointer, inside)
                found.setdefault(row, set()).add(way)
        return any(len(ways) > 1 for ways in found.values())

    def _pointers(self, loop: NaturalLoop) -> list[str]:
        """Pointers of the loop's loads and stores, those of loops inside it left out."""
        inner = [o.blocks for o in self.blocks.loops if o.header != loop.header and o.header in loop.blocks]
        own = loop.blocks - set().union(*inner)
        places = {"load": 0, "store": 1}
        instructions = (i for name in own for i in self.blocks.by_name[name].instructions)
        return [i.operands[places[i.opcode]].name for i in instructions if i.opcode in places]

    def _moves(self, name: str, inside: set[str], affine: set[str]) -> bool:
        made = self.blocks.made_by.get(name)
        if name in affine or name not in inside or made is None:
            return name in affine
        return made.opcode == "getelementptr" and any(self._moves(use, inside, affine) for use in made.uses)

    def _way(self, name: str, inside: set[str]) -> tuple[str, tuple[str, ...]]:
        """The row that an address is in, and the steps to it."""
        steps: list[str] = []
        made = self.blocks.made_by.get(name)
        while name in inside and made is not None and made.opcode == "getelementptr":
            steps += [o.name or o.text for o in made.operands[1:]]
            name = made.operands[0].name
            made = self.blocks.made_by.get(name)
        return self._written(name, made), tuple(steps)

    def _written(self, name: str, made: Instruction | None) -> str:
        """Text of the address computation that makes a pointer, if one does: pointers of equal text are one."""
        if made is None or made.opcode != "getelementptr":
            return name
        return made.text.partition(" = ")[2]


# Floating-point constants among the operands of instructions, as the words that registers hold.

_ELEMENT = re.compile(r"\b(float|double|half|bfloat) (0x[HRKLM]?[0-9A-Fa-f]+|[-+]?\d[-+.\deE]*)")
_SPLAT = re.compile(r"^<(\d+) x \w+> splat \((.*)\)$")
_ELSEWHERE = ("phi", "getelementptr", "insertvalue", "extractvalue", "ret", "br", "switch")
"""Instructions that take no constants of their own: values of a phi are set before it."""


def constant_words(instruction: Instruction) -> Iterator[int]:
    """Words of 32 bits of the constants that an instruction takes, zeros left out.

    A vector of which all words are one takes it from one register.
    """
    if instruction.opcode in _ELSEWHERE:
        return
    for operand in instruction.operands:
        if not operand.name:
            yield from (w for w in _constants_words(operand.text) if w)


def _constants_words(text: str) -> Iterator[int]:
    splat = _SPLAT.match(text)
    if splat is not None:
        # All lanes alike: two lanes say everything.
        text = f"{splat[2]}, {splat[2]}"
    lanes = [_bits(kind, number) for kind, number in _ELEMENT.findall(text)]
    halves = [bits for width, bits in lanes if width == 16]
    yield from dict.fromkeys(bits for width, bits in lanes if width == 32)
    if len(halves) == 1:
        yield halves[0]
        return
    yield from dict.fromkeys(low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=False))


def _bits(kind: str, number: str) -> tuple[int, int]:
    """Width and bits of one element. LLVM writes floats in decimal, or as the bits of the double that equals them."""
    if number.startswith(("0xH", "0xR")):
        return 16, int(number[3:], 16)
    value = np.uint64(int(number, 16)).view(np.float64) if number.startswith("0x") else np.float64(number)
    if kind in ("half", "bfloat"):
        return 16, int(np.float16(value).view(np.uint16))
    with np.errstate(over="ignore", invalid="ignore"):
        return 32, int(value.astype(np.float32).view(np.uint32))


FREE = Slots()
DATA_PATH_BITS = 64
"""Bits that one instruction loads, stores or computes. Source: machine reference §1.1, §1.3 S."""
_HALF_INSTRUCTIONS = ("exp", "exp2", "log", "tanh", "sigmoid", "sqrt", "rsqrt")
"""Functions that the tile has on vectors of f16."""
_HALF_SLOTS = {"log2": 1, "fdiv": 6}
"""Slots of an f16 element beside those. Source: §1.3 S: slots for 4 elements, divided and rounded up."""
_INTEGER = frozenset(["add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "icmp"])
_FLOAT = frozenset(["fadd", "fsub", "fmul", "fneg"])
_NOTHING = frozenset(
    ["phi", "getelementptr", "zext", "sext", "freeze", "alloca", "ptrtoint", "inttoptr", "extractvalue", "insertvalue"]
)
_STEPPED = frozenset(["add", "sub", "mul", "shl", "or", "zext", "sext", "trunc"])
_FREE_CALLS = (
    "llvm.lifetime",
    "llvm.assume",
    "llvm.dbg",
    "llvm.experimental",
    "llvm.invariant",
    "llvm.annotation",
    END,  # no instructions of the tile: what ends a vertex does so once
    LOOP,
)
BULK = ("llvm.memcpy", "llvm.memmove", "llvm.memset", "memcpy", "memmove", "memset")
"""Copies and fills of memory: their third operand is the number of bytes."""
BULK_SLOTS = 8
"""Slots around a copy or fill of memory, which then takes one for each 8 bytes. Source: §1.1 S, set-up G."""
_PRINT_SLOTS = 100
"""Slots of printing, which leaves the tile. Guessed."""
_ONE_SLOT_CALLS = frozenset(["fabs", "copysign", "minnum", "maxnum", "minimum", "maximum", "fmax", "fmin"])
_ONE_SLOT_CALLS |= {"floor", "ceil", "rint", "nearbyint", "trunc", "round", "roundeven"}
_INTEGER_CALLS = {"abs": 2, "smax": 1, "smin": 1, "umax": 1, "umin": 1, "ctpop": 1, "ctlz": 1, "cttz": 2, "bswap": 2}
_INTEGER_CALLS |= {"fshl": 3, "fshr": 3, "bitreverse": 4, "sadd": 3, "uadd": 2, "usub": 2, "ssub": 3}
_INTEGER_CALLS |= {"umul": 2, "smul": 3}
"""Instructions of integer operations that have, or may not have, one of their own. Guessed."""
_INSTRUCTIONS = {"sdiv": slots.DIVIDE, "udiv": slots.DIVIDE, "srem": slots.REMAINDER, "urem": slots.REMAINDER}
_INSTRUCTIONS |= {"fptosi": slots.FLOAT_TO_INT, "fptoui": slots.FLOAT_TO_INT}
"""Calls that stand for an instruction, whose result they define where it has none."""
_LIBRARY = {"exp10": 4, "log2": 6, "log10": 7, "hypot": 8, "fmod": 50}
"""Slots of one f32 element of functions outside the table. Source: §1.3 S, of 2 elements halved; log10, hypot and fmod
are G.
"""
_LIBRARY_SLOTS = 110
"""Slots of other functions of the C library. Source: §1.3 S: asin 102 and more per element."""
_NAME = re.compile(r"^(?:llvm\.|abele_|abele\.)?([a-z]\w*?)(?:_f32|_f16)?(?:f)?(?:\..*)?$")


@dataclass
class Costs:
    """Costs of one vertex class.

    Attributes:
        slots: Slots of each block, by its name.
        bulk: Copies and fills of memory, whose slots depend on their number of bytes: name of a block, and the calls.
        code_bytes: Size of the code on the tile.
    """

    slots: dict[str, int] = field(default_factory=dict)
    bulk: dict[str, list[Instruction]] = field(default_factory=dict)
    code_bytes: int = 0


def cost_blocks(blocks: FlowGraph, num_edges: int) -> Costs:
    """Costs of the code of a vertex with ``num_edges`` edges."""
    free = _Free(blocks)
    costs = Costs()
    for number, block in enumerate(blocks.blocks):
        following = blocks.blocks[number + 1].name if number + 1 < len(blocks.blocks) else ""
        code = _straight(block, following, free)
        costs.slots[block.name] = code.length
        costs.code_bytes += code.code_bytes
        bulk = [i for i in block.instructions if i.callee.startswith(BULK)]
        if bulk:
            costs.bulk[block.name] = bulk
    costs.slots[blocks.blocks[0].name] += num_edges * slots.POINTER_SLOTS
    costs.code_bytes += (num_edges + slots.ENTRY_SLOTS) * slots.INSTRUCTION_BYTES
    return costs


def _straight(block: BasicBlock, following: str, free: _Free) -> StraightCode:
    code = StraightCode()
    words: set[int] = set()
    for instruction in block.instructions[:-1]:
        for word in constant_words(instruction):
            if word not in words:
                words.add(word)
                code.place(slots.of_constant(word))
        cost = free.cost(instruction)
        place = code.step if instruction.name in free.stepping else code.place
        place(cost)
    last = block.last
    if last.opcode == "switch":
        # A switch as a binary search: a comparison and a branch for each halving.
        code.place(Slots(main=2 * math.ceil(math.log2(len(last.targets) + 1))))
    elif last.opcode == "br" and len(last.targets) > 1 and block.name in free.counted:
        code.branches = True
    # A jump to the block that comes next is no instruction.
    elif last.opcode == "br" and (len(last.targets) > 1 or last.targets[0] != following):
        code.place(slots.BRANCH)
    return code


class _Free:
    """Instructions that cost the tile nothing in loops.

    The tile's compiler turns an index into addresses that loads and stores move on as they go, and ends a counted loop
    with one branch that counts down. LLVM's code, which is not yet for any machine, spells out all of it: an ``add``
    for each index, a ``getelementptr`` for each address, a compare. So each loop is searched for values that move by an
    invariant amount each time round ("affine"). The steps of variables are affine, and so are sums, shifts and
    widenings of affine values and invariants. An affine value is free if it ends in addresses alone, and so is the
    compare of the latch with an invariant. A value that is also stored or computed with costs its instruction: the tile
    has to have it in a register. Without such a value, one step remains for a loop that touches a row at more than one
    place, and none for others: loads and stores step their addresses. Counts agree within a quarter with those of the
    same codelets in Python, whose loops are known from the source.

    Attributes:
        blocks: The code.
        names: Results of instructions that cost nothing.
        counted: Blocks that end a counted loop.
        stepping: Steps that stand for that of a loop whose addresses share an index.
    """

    def __init__(self, blocks: FlowGraph) -> None:
        self.blocks = blocks
        self.names: set[str] = set()
        self.counted: set[str] = set()
        self.stepping: set[str] = set()
        self.places = TouchedPlaces(blocks)
        for loop in blocks.loops:
            self._loop(loop)

    def _loop(self, loop: NaturalLoop) -> None:
        inside = [i for name in loop.blocks for i in self.blocks.by_name[name].instructions]
        names = {i.name for i in inside if i.name}
        steps = self._steps(loop, names)
        affine = set(steps) | set(steps.values()) | self._of_two_turns(loop)
        grown = True
        # Affine values of the loop: its variables, and whatever is computed of one of them and invariants alone. The
        # set only grows, so this ends.
        while grown:
            new = {i.name for i in inside if i.name not in affine and _moves(i, affine, names)}
            grown = bool(new)
            affine |= new
        for latch in loop.latches:
            self._latch(self.blocks.by_name[latch], affine, names, steps)
        counters = set(steps.values())
        # An index that only addresses read is free, as the address itself is stepped.
        for name in sorted(affine - counters):
            if _is_stepped(self.blocks.made_by[name]) and self._addresses(name, affine, set()):
                self.names.add(name)
        for phi, step in steps.items():
            # A counter is free where nothing reads it but itself, addresses and what is free.
            users = {u.name for n in (phi, step) for u in self.blocks.users.get(n, ()) if u.opcode != "getelementptr"}
            if users <= {phi, step} | self.names:
                self.names.add(step)
        pointers = [s for s in steps.values() if self.blocks.made_by[s].opcode == "getelementptr"]
        computed = [s for s in steps.values() if s not in self.names and s not in pointers]
        if steps and not computed and self.places.shared(loop, names, affine):
            self.stepping.add(next(iter(steps.values())))

    def cost(self, instruction: Instruction) -> Slots:
        """Slots of an instruction at its place."""
        if instruction.name in self.stepping:
            return slots.LOOP_STEP
        return FREE if instruction.name in self.names else instruction_cost(instruction, self.blocks)

    def _steps(self, loop: NaturalLoop, inside: set[str]) -> dict[str, str]:
        """Variables of the loop that move by an invariant: the value in the header, and the next one."""
        found = {}
        for phi in self.blocks.by_name[loop.header].instructions:
            if phi.opcode != "phi":
                break
            for use in phi.uses:
                step = self.blocks.made_by.get(use)
                if use in inside and step is not None and step.opcode in ("add", "sub", "getelementptr"):
                    others = [u for u in step.uses if u != phi.name]
                    if phi.name in step.uses and not any(u in inside for u in others):
                        found[phi.name] = use
        return found

    def _of_two_turns(self, loop: NaturalLoop) -> set[str]:
        """Variables of a loop of two turns, which LLVM writes as one constant after another; a truth ends it."""
        constant = {i.name for i in self.blocks.by_name[loop.header].instructions if i.opcode == "phi" and not i.uses}
        ends = [self.blocks.by_name[latch].last.operands[:1] for latch in loop.latches]
        twice = [latch for latch, end in zip(loop.latches, ends, strict=True) if end and end[0].name in constant]
        self.counted.update(twice)
        return constant if twice else set()

    def _latch(self, block: BasicBlock, affine: set[str], inside: set[str], steps: dict[str, str]) -> None:
        if block.last.opcode != "br" or len(block.last.targets) != 2:
            return
        test = self.blocks.made_by.get(block.last.operands[0].name)
        if test is None or test.opcode != "icmp" or test.name not in inside:
            return
        moving = [u for u in test.uses if u in affine]
        fixed = [u for u in test.uses if u not in inside]
        if len(moving) == 1 and len(moving) + len(fixed) == len(test.uses):
            self.names.add(test.name)
            self.counted.add(block.name)

    def _addresses(self, name: str, affine: set[str], seen: set[str]) -> bool:
        """True if a value serves addresses and free tests alone."""
        # A cycle of addresses that nothing else reads.
        if name in seen:
            return True
        seen.add(name)
        for user in self.blocks.users.get(name, ()):
            if user.opcode == "getelementptr" or user.name in self.names:
                continue
            if not _is_stepped(user) or user.name not in affine or not self._addresses(user.name, affine, seen):
                return False
        return True


def _is_stepped(instruction: Instruction) -> bool:
    """True if it keeps an index an index."""
    masks = instruction.opcode == "and" and any(_cuts_index(o.text) for o in instruction.operands)
    return masks or instruction.opcode in _STEPPED


def _cuts_index(constant: str) -> bool:
    """True for the mask by which 64-bit code cuts an index to 32 bits; of shifted indices, without the zeros below."""
    number = constant.rpartition(" ")[2]
    below = (1 << 32) - int(number) if number.isdigit() else 0
    return below > 0 and below & (below - 1) == 0 and below < 1 << 16


def _moves(instruction: Instruction, affine: set[str], inside: set[str]) -> bool:
    """True if a value moves by an invariant each time round."""
    if not _is_stepped(instruction) or instruction.type.startswith("<"):
        return False
    moving = [u for u in instruction.uses if u in affine]
    return len(moving) == 1 and all(u in affine or u not in inside for u in instruction.uses)


def instruction_cost(instruction: Instruction, blocks: FlowGraph) -> Slots:
    """Slots of an instruction on the worker."""
    opcode = instruction.opcode
    # Groups of opcodes with one cost per word of the data path.
    if opcode in _NOTHING:
        return _widening(instruction, blocks)
    if opcode in _INTEGER:
        return _times(slots.MAIN, _words(instruction.operands[0].type))
    if opcode in _FLOAT:
        return _times(slots.AUX, _words(instruction.type))
    # All others by their own entry of the table; vectors of the host are lanes of scalars on the tile.
    match opcode:
        case "load":
            return _times(slots.LOAD, _words(instruction.type))
        case "store":
            return _store(instruction.operands[0].type)
        case "fcmp":
            return _times(slots.FLOAT_COMPARE, _words(instruction.operands[0].type))
        case "select":
            return _times(slots.SELECT, _words(instruction.type))
        case "fdiv":
            each = slots.FLOAT_DIVIDE.aux if element(instruction.type) != "half" else _HALF_SLOTS["fdiv"]
            return Slots(aux=each * lanes(instruction.type))
        case "frem":
            return Slots(aux=_LIBRARY["fmod"] * lanes(instruction.type))
        case "udiv" | "sdiv" | "urem" | "srem" | "fptosi" | "fptoui":
            return _times(_INSTRUCTIONS[opcode], lanes(instruction.type))
        case "trunc":
            return slots.MAIN if bits(instruction.type) in (8, 16) else FREE
        case "fpext" | "fptrunc":
            if "half" not in instruction.operands[0].type + instruction.type:
                return FREE  # doubles in memory are floats on the tile
            return _times(slots.FLOAT_TO_FLOAT, math.ceil(lanes(instruction.type) / 2))
        case "sitofp" | "uitofp":
            origin = blocks.made_by.get(instruction.operands[0].name)
            # Random bits are where the conversion takes them.
            cost = slots.AUX if origin is not None and _is_random(origin) else slots.INT_TO_FLOAT
            return _times(cost, lanes(instruction.type))
        case "bitcast":
            return _move(instruction)
        case "extractelement" | "insertelement" | "shufflevector":
            return _lane(instruction)
        case "call":
            return _random(instruction, blocks) if _is_random(instruction) else _call(instruction)
    return slots.MAIN


def _is_random(instruction: Instruction) -> bool:
    return instruction.opcode == "call" and _function(instruction) == "urand32"


def _random(instruction: Instruction, blocks: FlowGraph) -> Slots:
    """Random bits, and the move to a register for integers where one is needed."""
    users = blocks.users.get(instruction.name, ())
    if all(u.opcode in ("sitofp", "uitofp") for u in users):
        return slots.RANDOM
    return Slots(main=slots.MOVE.main, aux=slots.RANDOM.aux, first="aux")


def _widening(instruction: Instruction, blocks: FlowGraph) -> Slots:
    """Slots of a widening: none for loaded values, truths and indices, one instruction for others."""
    if instruction.opcode not in ("zext", "sext"):
        return FREE
    source = instruction.operands[0]
    origin = blocks.made_by.get(source.name)
    narrow = bits(source.type) in (8, 16)
    return slots.MAIN if narrow and (origin is None or origin.opcode not in ("load", "phi")) else FREE


def _store(type_: str) -> Slots:
    width = bits(type_)
    return slots.of_store(width) if width < 32 else _times(slots.STORE, _words(type_))


def _move(instruction: Instruction) -> Slots:
    """Floats and integers have registers of their own."""
    sides = {element(instruction.operands[0].type) in ("float", "half"), element(instruction.type) in ("float", "half")}
    return _times(slots.MAIN, _words(instruction.type)) if len(sides) == 2 else FREE


def _lane(instruction: Instruction) -> Slots:
    """Lanes of 32 bits are registers of their own; those of 16 bits are sorted into place."""
    vector = instruction.operands[0].type if instruction.opcode == "extractelement" else instruction.type
    return FREE if bits(element(vector)) >= 32 else _times(slots.AUX, _words(vector))


def _function(instruction: Instruction) -> str:
    """Function of a call, without the types in its name."""
    found = _NAME.match(instruction.callee)
    return found[1] if found else instruction.callee


def _call(instruction: Instruction) -> Slots:
    name = instruction.callee
    if name.startswith(_FREE_CALLS):
        return FREE
    if name.startswith(BULK):
        return Slots(main=BULK_SLOTS)
    if name in ("printf", "puts", "putchar"):
        return Slots(main=_PRINT_SLOTS)
    function = _function(instruction)
    if function in _INSTRUCTIONS:
        return _times(_INSTRUCTIONS[function], lanes(instruction.type))
    if function in ("fma", "fmuladd"):
        return _times(slots.of_function("fma"), _words(instruction.type))
    if function in _ONE_SLOT_CALLS:
        return _times(slots.AUX, _words(instruction.type))
    if function in _INTEGER_CALLS:
        return _times(slots.MAIN, _INTEGER_CALLS[function] * _words(instruction.type))
    if ".vector.reduce." in name or function == "vector":
        return _reduction(instruction)
    return Slots(aux=_function_slots(function, instruction.type) * lanes(instruction.type))


def _reduction(instruction: Instruction) -> Slots:
    number = lanes(instruction.operands[0].type)
    return Slots(aux=number) if element(instruction.type) in ("float", "half") else Slots(main=number)


def _function_slots(function: str, type_: str) -> int:
    operation = TABLE.get(function)
    if element(type_) == "half":
        if function in _HALF_SLOTS:
            return _HALF_SLOTS[function]
        if function in _HALF_INSTRUCTIONS and operation is not None and operation.cost is not None:
            loop = operation.cost.f16
            return math.ceil(loop.cycles / loop.elements)
    known = None if operation is None else operation.slots
    return _LIBRARY.get(function, _LIBRARY_SLOTS) if known is None else known.aux


def _times(cost: Slots, number: int) -> Slots:
    return cost if number == 1 else Slots(cost.main * number, cost.aux * number, cost.source, cost.first)


def _words(type_: str) -> int:
    return max(1, math.ceil(bits(type_) / DATA_PATH_BITS))


def lanes(type_: str) -> int:
    """Elements of a type."""
    found = re.match(r"<(\d+) x ", type_)
    return int(found[1]) if found else 1


def element(type_: str) -> str:
    """Type of the elements of a type."""
    return re.sub(r"^<\d+ x (.*)>$", r"\1", type_)


def bits(type_: str) -> int:
    """Bits of a type."""
    single = element(type_)
    known = {"float": 32, "half": 16, "double": 32, "ptr": 32}
    width = known.get(single) or (int(single[1:]) if single[1:].isdigit() else 32)
    return width * lanes(type_)
