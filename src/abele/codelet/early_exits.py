"""Vertices that end before their time: at a call that ends the program, or in a loop stopped by the host.

Native code of a codelet that may do so has two globals. ``abele.ended`` holds the first end of all: 1 + the number of
the vertex, times 2^16, plus the number of the place; 0: none. ``abele.stop`` is 1 while the host wants loops to end: a
loop of which nobody can tell that it ends looks at it every time round. Where the host can leave a fault of the
processor, an end is one, so that the run is over at once; elsewhere the vertex returns, and the run is over after its
last step.
"""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass

from abele.codelet.tree import (
    Assign,
    BinaryExpr,
    Compare,
    ConstExpr,
    Helper,
    HelperCall,
    Leave,
    Local,
    Stmt,
    WhileStmt,
    all_expressions,
    walk,
)
from abele.llvm import ir as ll
from abele.llvm.emit import I8, I64, VOID, Value, constant
from abele.llvm.host import host_cpu
from abele.llvm.jit import Native

END, STOP, ENDED = "abele.end", "abele.stop", "abele.ended"
MOST_SLOTS = 1 << 30
"""Slots of a vertex, 3.5 s on a Bow, at which counting beforehand gives up an endless loop."""
STOPPED = "is in a loop that did not end, and was stopped"
"""Words for a vertex whose loop the host ends."""
_PLACES = 1 << 16
_DECLARED = re.compile(rf'^declare [^\n]*@"?{re.escape(END)}"?\([^\n]*\n', re.M)


@dataclass(frozen=True)
class EndPlace:
    """A place of a codelet where a vertex may end.

    Attributes:
        line: ``file:line``.
        text: Event there: ``calls abort()``; empty for a loop that was stopped.
        waits: True if nothing that the loop does can end it: it waits for another worker.
    """

    line: str
    text: str = ""
    waits: bool = False


def end_text(place: EndPlace) -> str:
    """Words for the end of a vertex at a place, after its name."""
    if place.waits:
        return "waits for what another worker writes"
    return place.text or STOPPED


@dataclass(frozen=True)
class EndedVertex:
    """The end of a vertex in a run.

    Attributes:
        vertex: Its number.
        place: Place of the end.
    """

    vertex: int
    place: EndPlace


def end_function(*, faults: bool = True) -> str:
    """Text of the function ``void abele.end(i64 vertex, i64 place)``.

    Args:
        faults: False for code that is called where nobody expects a fault.
    """
    leave = "  call void @llvm.trap()\n" if faults and host_cpu().is_x86 and sys.platform == "linux" else ""
    return (
        f"{'declare void @llvm.trap()' if leave else ''}\n"
        f"define internal void @{END}(i64 %vertex, i64 %place) noinline cold {{\n"
        f"  %known = load atomic i64, ptr @{ENDED} monotonic, align 8\n"
        "  %first = icmp eq i64 %known, 0\n  br i1 %first, label %note, label %leave\nnote:\n"
        f"  %number = add i64 %vertex, 1\n  %high = mul i64 %number, {_PLACES}\n  %word = or i64 %high, %place\n"
        f"  store atomic i64 %word, ptr @{ENDED} monotonic, align 8\n  br label %leave\nleave:\n{leave}  ret void\n}}\n"
    )


def with_end_function(text: str, *, faults: bool = True) -> str:
    """Text of a module that calls ``abele.end`` with that function; others unchanged."""
    if f"@{END}" not in text and f'@"{END}"' not in text:
        return text
    return _DECLARED.sub("", text) + "\n" + end_function(faults=faults)


def take_end(native: Native) -> tuple[int, int] | None:
    """Vertex and place of the first end in code since the last call of this."""
    word = ctypes.c_int64.from_address(native.address(ENDED))
    if not word.value:
        return None
    vertex, place = divmod(word.value, _PLACES)
    word.value = 0
    return vertex - 1, place


def ask_to_end(native: Native, asked: bool) -> None:
    """Let loops of code end that need not, from now on or no longer."""
    ctypes.c_int8.from_address(native.address(STOP)).value = int(asked)


def endless_loops(function: Helper) -> tuple[WhileStmt, ...]:
    """Endless loops of a Python codelet, those of functions that it calls included."""
    called = {e.helper: None for e in all_expressions(function.body) if isinstance(e, HelperCall)}
    found = (s for f in (function, *called) for s in walk(f.body) if isinstance(s, WhileStmt))
    return tuple(s for s in found if not _counts(s))


def _counts(loop: WhileStmt) -> bool:
    """True if a variable steps by a constant towards the other side of the loop's comparison each time round."""
    test, body = loop.condition, list(walk(loop.body))
    if not isinstance(test, Compare) or any(isinstance(s, Leave) and s.how == "continue" for s in body):
        return False
    for side, towards in ((test.left, 1), (test.right, -1)):
        if isinstance(side, Local):
            own = [s for s in body if isinstance(s, Assign) and s.name == side.name]
            step = _step(own[0]) * towards if len(own) == 1 and own[0] in loop.body else 0
            if (step > 0 and test.op in ("<", "<=")) or (step < 0 and test.op in (">", ">=")):
                return True
    return False


def _step(statement: Assign) -> float:
    """Amount that an assignment adds to its own variable; 0 if it adds no constant."""
    value = statement.value
    if not isinstance(value, BinaryExpr) or value.op not in ("add", "sub") or not isinstance(value.right, ConstExpr):
        return 0
    own = isinstance(value.left, Local) and value.left.name == statement.name and value.type.kind in ("int", "uint")
    return (value.right.value if value.op == "add" else -value.right.value) if own else 0


@dataclass(frozen=True)
class StoppedLoops:
    """Loops of the vertex at hand that may be stopped.

    Attributes:
        vertex: Its number.
        places: Number of each loop.
    """

    vertex: Value
    places: dict[Stmt, int]

    def emit(self, b: ll.IRBuilder, loop: Stmt, after: ll.Block) -> None:
        """Code that goes to ``after`` once the host wants loops to end."""
        place = self.places.get(loop)
        if place is None:
            return
        module = b.module
        stop, end = module.globals.get(STOP), module.globals.get(END)
        if stop is None:
            stop, ended = ll.GlobalVariable(module, I8, STOP), ll.GlobalVariable(module, I64, ENDED)
            stop.initializer, ended.initializer = ll.Constant(I8, 0), ll.Constant(I64, 0)
        asked = b.icmp_unsigned("!=", b.load_atomic(stop, "monotonic", 1, typ=I8), constant(I8, 0))
        stopped, on = b.append_basic_block("stopped"), b.append_basic_block("on")
        b.cbranch(asked, stopped, on)
        b.position_at_end(stopped)
        b.call(end or ll.Function(module, ll.FunctionType(VOID, [I64, I64]), END), [self.vertex, constant(I64, place)])
        b.branch(after)
        b.position_at_end(on)
