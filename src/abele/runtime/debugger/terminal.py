"""The debugger in a terminal: commands, one line each."""

from __future__ import annotations

import ast
import cmd
import fnmatch
import shlex
import sys
import webbrowser
from collections.abc import Callable
from types import EllipsisType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape

from abele import terminal
from abele.compiler.text.program import step_text
from abele.errors import AbeleError, EngineError, nearest
from abele.graph import Graph, Tensor
from abele.runtime.debugger import text
from abele.runtime.debugger.breakpoints import AtStep, AtTile, AtVertex, Breakpoint, OnAnyNan, OnChange, OnNan
from abele.runtime.debugger.debugger import Debugger
from abele.runtime.host.access import find_tensor

if TYPE_CHECKING:
    from abele.viewer import Viewer


# Views by text: ``weights[0, :4]`` as the debugger's commands name tensors.

_Item = int | slice | EllipsisType | None


def find_view(graph: Graph, text: str) -> tuple[Tensor, str]:
    """View of a name with an index (or without), and a name for it.

    The name is that of a host handle or variable, in quotes if you like.

    Raises:
        EngineError: No such variable, or an index that is none.
        TensorError: An index that the variable does not have.
    """
    text = text.strip()
    name, bracket, rest = text.partition("[")
    name = name.strip().strip("'\"")
    tensor = find_tensor(graph, name)
    if not bracket:
        return tensor, name
    try:
        index = ast.parse(f"x[{rest}", mode="eval").body
        items = _items(index.slice) if isinstance(index, ast.Subscript) else None
    except (SyntaxError, ValueError):
        items = None
    if items is None:
        raise EngineError(f"{text!r} has no index that can be read", remedy=f"as in {name}[0, 1:3]")
    return tensor[items], f"{name}[{rest}"


def _items(node: ast.expr) -> tuple[_Item, ...]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return tuple(_item(part) for part in parts)


def _item(node: ast.expr) -> _Item:
    if isinstance(node, ast.Slice):
        return slice(*(None if part is None else _number(part) for part in (node.lower, node.upper, node.step)))
    value = ast.literal_eval(node)
    if value is Ellipsis or value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(value)


def _number(node: ast.expr) -> int:
    value = ast.literal_eval(node)
    if not isinstance(value, int):
        raise ValueError(value)
    return value


_SHORT = {
    "s": "step",
    "c": "run",
    "continue": "run",
    "o": "out",
    "b": "back",
    "bp": "break",
    "p": "print",
    "w": "where",
    "l": "list",
    "t": "tile",
    "q": "quit",
    "exit": "quit",
    "EOF": "quit",
}
_AROUND = 6


class Terminal(cmd.Cmd):
    """Reads commands and shows their results.

    Args:
        debugger: Debugger that commands act on.
        commands: Source of commands; the terminal when left out.
        output: File that text is written to; standard output when left out.
    """

    prompt = "(abele) "

    def __init__(self, debugger: Debugger, commands: IO[str] | None = None, output: IO[str] | None = None) -> None:
        super().__init__(stdin=commands, stdout=output)
        self.debugger = debugger
        self._viewer: Viewer | None = None
        self._scripted = commands is not None
        self.use_rawinput = not self._scripted
        self._shown_prompt, self.prompt = self.prompt, "" if self._scripted else self.prompt
        self._console = terminal.console(file=output or sys.stdout, soft_wrap=True, markup=True)

    def interact(self) -> None:
        """Serve commands until ``quit``; afterwards the engine has its memory back."""
        try:
            self._welcome()
            while True:
                try:
                    self.cmdloop("")
                    break
                except KeyboardInterrupt:
                    self._say("interrupted; quit leaves the debugger")
        finally:
            self.debugger.close()
            if self._viewer is not None:
                self._viewer.close()

    # --- running -----------------------------------------------------------------------------------------------------

    def do_step(self, line: str) -> None:
        """step [N]: run the next step, or the next N."""
        self.debugger.step(self._count(line))
        self._position()

    def do_run(self, line: str) -> None:
        """run: go on until a breakpoint or the end."""
        self.debugger.run()
        self._position()

    def do_out(self, line: str) -> None:
        """out: go on until the innermost loop, branch, call or library call is done."""
        self.debugger.out()
        self._position()

    def do_back(self, line: str) -> None:
        """back [N]: take the last step back, or the last N."""
        wanted = self._count(line)
        taken = self.debugger.back(wanted)
        if taken < wanted:
            self._say(f"only {taken} steps could be taken back")
        self._position()

    def do_goto(self, line: str) -> None:
        """goto N: to where N steps have run, backwards or forwards."""
        self.debugger.go_to(self._number(line, "goto 12"))
        self._position()

    def do_finish(self, line: str) -> bool:
        """finish: run to the end, past breakpoints, and leave."""
        self.debugger.finish()
        self._say(f"the program ended after {self.debugger.position:,} steps, {self.debugger.cycles:,} cycles")
        return True

    def do_quit(self, line: str) -> bool:
        """quit: leave; the engine keeps memory as it is now."""
        return True

    # --- breakpoints -------------------------------------------------------------------------------------------------

    def do_break(self, line: str) -> None:
        """break step PATTERN | break vertex CODELET [TILE] | break tile N: stop before such steps.

        A pattern is a step's name, with * for anything; a number is a line of ``list``.
        """
        words = shlex.split(line)
        kind, rest = (words[0], words[1:]) if words else ("", [])
        if kind == "step" and len(rest) == 1:
            self._add(self._at_step(rest[0]))
        elif kind == "vertex" and 1 <= len(rest) <= 2:
            self._add(AtVertex(rest[0], self._number(rest[1], "break vertex Sum 3") if rest[1:] else None))
        elif kind == "tile" and len(rest) == 1:
            self._add(AtTile(self._number(rest[0], "break tile 3")))
        else:
            raise EngineError(
                f"break {line} is no breakpoint",
                remedy="break step PATTERN, break vertex CODELET [TILE], break tile N, watch TENSOR, nan [TENSOR]",
            )

    def do_watch(self, line: str) -> None:
        """watch TENSOR[INDEX]: stop after a step that changes it."""
        self._add(OnChange(*find_view(self.debugger.engine.graph, line)))

    def do_nan(self, line: str) -> None:
        """nan [TENSOR]: stop after a step that turns an element NaN, anywhere or in one tensor."""
        self._add(OnNan(*find_view(self.debugger.engine.graph, line)) if line.strip() else OnAnyNan())

    def do_breaks(self, line: str) -> None:
        """breaks: the breakpoints."""
        for number, breakpoint_ in self.debugger.breakpoints.items():
            self._say(f"{number:>3}  {breakpoint_.text}")
        if not self.debugger.breakpoints:
            self._say("none")

    def do_delete(self, line: str) -> None:
        """delete N: forget a breakpoint."""
        number = self._number(line, "delete 1")
        if self.debugger.breakpoints.pop(number, None) is None:
            raise EngineError(f"there is no breakpoint {number}", remedy="breaks lists them")

    # --- looking -----------------------------------------------------------------------------------------------------

    def do_where(self, line: str) -> None:
        """where: the step at hand and what it is inside of."""
        self._position()

    def do_list(self, line: str) -> None:
        """list [all]: the program around the step at hand."""
        lines = list(text.listing(self.debugger.program, self.debugger.stack, self.debugger.step_at_hand))
        here = next((n for n, (_, at_hand) in enumerate(lines) if at_hand), len(lines))
        low, high = (0, len(lines)) if line.strip() == "all" else (here - _AROUND, here + _AROUND + 1)
        for number, (content, at_hand) in enumerate(lines):
            if low <= number < high:
                mark = "[bold green]→[/]" if at_hand else " "
                self._console.print(f"{mark}{number:>4}  {escape(content)}")

    def do_print(self, line: str) -> None:
        """print TENSOR[INDEX]: its values."""
        tensor, name = find_view(self.debugger.engine.graph, line)
        self._lines(text.tensor_lines(name, tensor, self.debugger.read(tensor)))

    def do_tensors(self, line: str) -> None:
        """tensors [PATTERN]: the variables and host handles."""
        graph = self.debugger.engine.graph
        shown = [v for v in graph.variables if fnmatch.fnmatchcase(v.name, line.strip() or "*")]
        for variable in shown[:60]:
            self._say(f"{variable.kind:<9} {variable.dtype!s:<5} {list(variable.shape)!s:<18} {variable.name}")
        if len(shown) > 60:
            self._say(f"… {len(shown) - 60} more; tensors PATTERN shows some")

    def do_tile(self, line: str) -> None:
        """tile N: what a tile holds, and its vertices in the step at hand."""
        debugger, graph = self.debugger, self.debugger.engine.graph
        tile = self._number(line, "tile 3")
        if not 0 <= tile < graph.num_tiles:
            raise EngineError(f"there is no tile {tile}", remedy=f"0 to {graph.num_tiles - 1}")
        self._lines(text.tile_lines(graph, tile, lambda v: debugger.read(graph.whole(v)), self._placed()))

    def do_vertex(self, line: str) -> None:
        """vertex N: the fields of a vertex of the step at hand, as memory holds them."""
        lines = text.vertex_lines(self._placed(), self._number(line, "vertex 0"))
        if not lines:
            raise EngineError("the step at hand has no such vertex", remedy="where shows how many it has")
        self._lines(lines)

    def do_set(self, line: str) -> None:
        """set TENSOR[INDEX] = VALUE: change memory; VALUE is a number or a list."""
        target, equals, value = line.partition("=")
        if not equals:
            raise EngineError("set needs a value", remedy="set x[0] = 1.5")
        tensor, name = find_view(self.debugger.engine.graph, target)
        try:
            values = np.asarray(ast.literal_eval(value.strip()))
        except (SyntaxError, ValueError) as error:
            raise EngineError(f"{value.strip()!r} is no number and no list of numbers") from error
        self.debugger.write(tensor, values)
        self._lines(text.tensor_lines(name, tensor, self.debugger.read(tensor)))

    def do_view(self, line: str) -> None:
        """view [FILE]: the program in the browser, at the step at hand; or its report, written to FILE."""
        engine, at_hand = self.debugger.engine, self.debugger.step_at_hand
        if line.strip():
            engine.report.save(line.strip())
            self._say(f"written: {line.strip()}; abele view shows it")
            return
        if self._viewer is None:
            from abele.viewer import view

            self._viewer = view(engine.report, browser=False)
        row = next((n for n, step in enumerate(engine.executable.steps) if step.node is at_hand), None)
        address = self._viewer.address + ("#view=program" if row is None else f"#step={row}&view=program")
        self._say(address)
        if not self._scripted:
            webbrowser.open(address)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def onecmd(self, line: str) -> bool:
        """Carry out one line; a mistake is told and changes nothing."""
        word, _, rest = line.strip().partition(" ")
        word = _SHORT.get(line.strip() if line.strip() == "EOF" else word, word)
        if self._scripted and line != "EOF":
            self._say(f"{self._shown_prompt}{line.strip()}")
        try:
            return bool(super().onecmd(f"{word} {rest}".strip()))
        except AbeleError as error:
            self._console.print(f"[red]{type(error).__name__}[/]: {escape(str(error))}")
            return False

    def emptyline(self) -> bool:
        """Nothing: an empty line repeats no command."""
        return False

    def default(self, line: str) -> None:
        """An unknown command."""
        word = line.split(" ")[0]
        close = nearest(word, [n[3:] for n in dir(self) if n.startswith("do_")])
        raise EngineError(
            f"there is no command {word!r}",
            remedy=f"did you mean {close!r}? help lists all" if close else "help lists all",
        )

    def do_help(self, arg: str) -> None:
        """help [COMMAND]: the commands, or one of them."""
        if arg:
            action: Callable[[str], Any] | None = getattr(self, f"do_{_SHORT.get(arg, arg)}", None)
            if action is None:
                self.default(arg)
            else:
                self._lines([part.strip() for part in (action.__doc__ or "").strip().splitlines()])
            return
        for name in _HELP:
            self._say("  " + (getattr(self, f"do_{name}").__doc__ or name).strip().partition("\n")[0])
        self._say("  short: " + ", ".join(f"{k} {v}" for k, v in _SHORT.items() if len(k) < 3))

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Commands that begin with the typed text."""
        return [name for name in _HELP if name.startswith(text)]

    def completedefault(self, text: str, line: str, begin: int, end: int) -> list[str]:
        """Variables that begin with the typed text."""
        return [v.name for v in self.debugger.engine.graph.variables if v.name.startswith(text)]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _welcome(self) -> None:
        graph = self.debugger.engine.graph
        self._say(f"{graph.system.title}, {len(graph.variables)} variables; help lists the commands")
        self._position()

    def _position(self) -> None:
        debugger = self.debugger
        if debugger.reason:
            self._console.print(f"[yellow]{escape(debugger.reason)}[/]")
        head = f"step {debugger.position:,}, cycle {debugger.cycles:,}"
        step = debugger.step_at_hand
        if step is None:
            self._say(f"{head}: the program has ended")
            return
        place = text.place_text(step)
        self._console.print(
            f"{head}: [bold]{escape(step_text(step))}[/]" + (f"   [dim]{escape(place)}[/]" if place else "")
        )
        inside = [frame.text for frame in debugger.stack if frame.text != "sequence"]
        if inside:
            self._say("  in " + ", in ".join(reversed(inside)))

    def _placed(self) -> list[Any]:
        step = self.debugger.step_at_hand
        return [] if step is None else self.debugger.placed(step)

    def _at_step(self, pattern: str) -> Breakpoint:
        if not pattern.isdigit():
            return AtStep(pattern)
        nodes = text.listed_steps(self.debugger.program, self.debugger.stack)
        if int(pattern) >= len(nodes):
            raise EngineError(f"the program has no line {pattern}", remedy="list all shows the lines")
        node = nodes[int(pattern)]
        return AtStep(pattern, text.first_leaf(node))

    def _add(self, breakpoint_: Breakpoint) -> None:
        number = self.debugger.add(breakpoint_)
        self._say(f"breakpoint {number}: {breakpoint_.text}")

    @staticmethod
    def _number(line: str, example: str) -> int:
        try:
            return int(line.strip().replace(",", ""))
        except ValueError:
            raise EngineError(f"{line.strip()!r} is no number", remedy=f"as in {example}") from None

    def _count(self, line: str) -> int:
        return self._number(line, "step 10") if line.strip() else 1

    def _say(self, line: str) -> None:
        self._console.print(escape(line))

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            self._say(line)


_HELP = (
    "step",
    "run",
    "out",
    "back",
    "goto",
    "finish",
    "break",
    "watch",
    "nan",
    "breaks",
    "delete",
    "where",
    "list",
    "print",
    "tensors",
    "tile",
    "vertex",
    "set",
    "view",
    "help",
    "quit",
)
