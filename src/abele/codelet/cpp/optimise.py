"""From the front end's code to one plain function per vertex: everything inlined, scalar, loops unchanged.

What is left is what both the native code and the counting start from. It depends neither on the compiler that was
there nor on the host CPU: the front end optimises nothing, and the passes here are told of no CPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as binding

from abele.codelet.cpp.entry import VIRTUAL, entry_text
from abele.codelet.cpp.library import MATH
from abele.codelet.cpp.metadata import global_name
from abele.codelet.cpp.pointers import with_direct_calls
from abele.codelet.cpp.reflect import VertexClass
from abele.codelet.cpp.single import computes_in_double, in_single_precision
from abele.errors import CodeletError, CodeletLoadError
from abele.llvm import ir as ll
from abele.llvm.emit import Value, constant
from abele.llvm.host import host_cpu, per_cpu
from abele.llvm.jit import initialise_targets

# Operations left undefined by LLVM, with the results of Python codelets.
#
# Integer division by zero ends a process on the host, and an optimiser may delete whatever leads to it. On the tile it
# is a function of the run-time library, which does not trap. So the front end's divisions become calls of functions
# without side effects before anything is optimised. They are costed as divisions, and get their bodies where native
# code is made. A division by a number that is known to be neither 0 nor -1 stays an instruction, which the optimiser
# understands; calls whose divisor the optimiser has found out become such instructions afterwards.
#
# ``x / 0`` and ``x % 0`` are 0; the lowest number by -1 is itself, and leaves 0. Floats become integers towards zero,
# held at the ends of the range, and NaN becomes 0. Shift counts are modulo the width.

PREFIXES = tuple(f"abele_{op}." for op in ("sdiv", "udiv", "srem", "urem"))
"""Prefixes of the symbols of divisions; the rest is the type, as intrinsics have it."""
CALLED = re.compile(r"@(abele_([su](?:div|rem))\.((?:v\d+)?i\d+))(?=\()")
"""Finds the symbols of divisions in code: whole, the instruction's name, the type."""
_TYPE = r"i\d+|<\d+ x i\d+>"
_VALUE = r'%(?:"[^"]*"|[-\w$.]+)|-?\d+|poison|undef|zeroinitializer|splat \([^)]*\)|<[^>]*>'
_DIVISION = re.compile(rf"= ([su](?:div|rem)) (?:exact )?({_TYPE}) ({_VALUE}), ({_VALUE})")
_CALL = re.compile(
    rf"= (?:tail )?call ({_TYPE}) @abele_([su](?:div|rem))\.\S+?\((?:{_TYPE}) (?:noundef )?({_VALUE}), "
    rf"(?:{_TYPE}) (?:noundef )?({_VALUE})\)(?: #\d+)?"
)
_CONVERSION = re.compile(rf"= (fpto[su]i) (\w+|<\d+ x \w+>) ({_VALUE}|[-+.\w]+) to ({_TYPE})")
_SHIFT = re.compile(rf"^( *\S+ = )(shl|lshr|ashr)(?: nuw| nsw| exact)* ({_TYPE}) ({_VALUE}), (%[^,\n]+)", re.M)
_POISON = re.compile(r"^(?!.*\b(?:insertelement|shufflevector|phi|freeze)\b)(.*\bi\d+ )poison\b", re.M)
_ATTRIBUTES = "nounwind willreturn nosync nofree nocallback memory(none)"
_FLOATS = {"float": "f32", "half": "f16", "double": "f64"}


def with_calls(text: str) -> str:
    """The front end's module with calls in place of divisions and conversions that may be undefined."""
    declared: dict[str, str] = {}

    def division(found: re.Match[str]) -> str:
        op, type_, x, y = found.groups()
        if _is_harmless(y):
            return found[0]
        name = f"abele_{op}.{_suffix(type_)}"
        declared[name] = f"declare {type_} @{name}({type_}, {type_}) {_ATTRIBUTES}"
        return f"= call {type_} @{name}({type_} {x}, {type_} {y})"

    def conversion(found: re.Match[str]) -> str:
        op, have, x, wanted = found.groups()
        name = f"llvm.{op}.sat.{_suffix(wanted)}.{_suffix(have)}"
        declared[name] = f"declare {wanted} @{name}({have})"
        return f"= call {wanted} @{name}({have} {x})"

    # Integers without a value are 0, so that results do not depend on the optimiser's choice.
    text = _POISON.sub(r"\g<1>0", text)
    text = _CONVERSION.sub(conversion, _DIVISION.sub(division, text))
    known = [name for name in declared if re.search(rf"^declare .*@{re.escape(name)}\(", text, re.M)]
    return "\n".join([text, *(line for name, line in declared.items() if name not in known), ""])


def with_known_divisors(text: str) -> str | None:
    """The optimised module with instructions in place of divisions by numbers that have become known; None if there
    are none."""

    def instruction(call: re.Match[str]) -> str:
        type_, op, x, y = call.groups()
        return f"= {op} {type_} {x}, {y}" if _is_harmless(y) else call[0]

    found = _CALL.sub(instruction, text)
    return None if found == text else found


def with_counts_modulo_width(body: str) -> str:
    """Blocks of code whose shifts by unknown counts take them modulo the width."""
    number = 0

    def shift(found: re.Match[str]) -> str:
        nonlocal number
        number += 1
        begin, op, type_, x, count = found.groups()
        width = int(re.findall(r"i(\d+)", type_)[0]) - 1
        mask = f"splat (i{width + 1} {width})" if type_.startswith("<") else str(width)
        # LLVM's shift by the width or more is undefined: with the mask it is by the rest.
        masked = f"%abele.count.{number}"
        return f"  {masked} = and {type_} {count}, {mask}\n{begin}{op} {type_} {x}, {masked}"

    return _SHIFT.sub(shift, body)


def define_division(module: ll.Module, symbol: str, op: str, suffix: str) -> None:
    """Give a division its body, if it has none yet."""
    if symbol in module.globals:
        return
    width = re.fullmatch(r"(?:v(\d+))?i(\d+)", suffix)
    assert width is not None
    scalar = ll.IntType(int(width[2]))
    type_ = ll.VectorType(scalar, int(width[1])) if width[1] else scalar
    function = ll.Function(module, ll.FunctionType(type_, [type_, type_]), symbol)
    function.linkage = "internal"
    b = ll.IRBuilder(function.append_basic_block())
    b.ret(_signed(b, op, *function.args) if op[0] == "s" else _unsigned(b, op, *function.args))


def _signed(b: ll.IRBuilder, op: str, x: Value, y: Value) -> Value:
    zero, one = constant(x.type, 0), constant(x.type, 1)
    by_zero = b.icmp_signed("==", y, zero)
    special = b.or_(by_zero, b.icmp_signed("==", y, constant(x.type, -1)))
    # Divided by 1 where the machine's instruction would trap; both special cases are replaced afterwards.
    safe = b.select(special, one, y)
    if op == "srem":
        return b.select(special, zero, b.srem(x, safe))
    return b.select(special, b.select(by_zero, zero, b.neg(x)), b.sdiv(x, safe))


def _unsigned(b: ll.IRBuilder, op: str, x: Value, y: Value) -> Value:
    zero = constant(x.type, 0)
    by_zero = b.icmp_unsigned("==", y, zero)
    safe = b.select(by_zero, constant(x.type, 1), y)
    return b.select(by_zero, zero, b.udiv(x, safe) if op == "udiv" else b.urem(x, safe))


def _is_harmless(divisor: str) -> bool:
    """True if a divisor is a number (or numbers) other than 0 and -1."""
    numbers = re.findall(r"(?<![\w%.])-?\d+\b", re.sub(r"i\d+ ", "", divisor)) if divisor[0] != "%" else []
    return bool(numbers) and not {"0", "-1"} & set(numbers)


def _suffix(type_: str) -> str:
    """Name of a type in intrinsics."""
    lanes = re.fullmatch(r"<(\d+) x (\w+)>", type_)
    if lanes:
        return f"v{lanes[1]}{_suffix(lanes[2])}"
    return _FLOATS.get(type_, type_)


_KEPT = re.compile(
    r"\b(?:mustprogress|nounwind|willreturn|nofree|nosync|nocallback|speculatable|norecurse|noreturn|cold"
    r"|memory\([^)]*\)|allockind\([^)]*\))(?=\s|$)|\"no-builtin-\w+\""
)
_GROUP = re.compile(r"^attributes #(\d+) = \{ (.*) \}$", re.M)
_DEFINE = re.compile(
    r"^define (?:(?:weak_odr|linkonce_odr|weak|linkonce|internal|private|available_externally) )?(.*)$", re.M
)
_GLOBAL = re.compile(r"^(@\S+ = )(?:weak_odr|linkonce_odr|weak|linkonce) (.*)$", re.M)
_DEFINED = re.compile(r"^(@\S+ = )(constant) ", re.M)
_VISIBILITY = re.compile(r"\b(?:dso_local|hidden|protected|local_unnamed_addr|unnamed_addr) ")
COMDAT = re.compile(r"^\$.* = comdat any\n|,? comdat(?:\(\$[^)]*\))?", re.M)
_USED = re.compile(r"^@llvm\.(?:compiler\.)?used = .*\n", re.M)
_ACCESS = re.compile(r"^(  .*\b(?:load|store) .*<\d+ x (\w+)>.*), align \d+", re.M)
_BYTES = {"double": 8, "float": 4, "half": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1, "ptr": 8}
VARIABLE = re.compile(r'^(@(?:"[^"]*"|[-\w$.]+)) = (?!external |extern_weak )[^\n"]*?\bglobal ', re.M)
"""A variable that a module defines."""
_REFERENCE = re.compile(r"\balign \d+ (?=dereferenceable|%|@)")


def parsed(bitcode: bytes, name: str) -> Any:
    """The module of bitcode.

    Raises:
        CodeletLoadError: The compiler is newer than the LLVM that reads its code.
    """
    try:
        return binding.parse_bitcode(bitcode, binding.create_context())
    except RuntimeError as error:
        version = ".".join(map(str, binding.llvm_version_info))
        raise CodeletLoadError(
            f"code that the C++ compiler made of {name} cannot be read",
            because=f"llvmlite has LLVM {version}: {str(error).splitlines()[0]}",
            remedy="install a newer llvmlite, or an older compiler: pip install ziglang==0.14.1",
        ) from error


def with_entries(text: str, vertices: Sequence[VertexClass], signatures: dict[str, str], *, aliasing: bool) -> str:
    """The front end's module, its functions private and always put in place, with a function for every vertex.

    Args:
        text: Text of the module.
        vertices: Its vertex classes.
        signatures: Types of its functions by symbol.
        aliasing: True if fields of a vertex may overlap.

    Raises:
        CodeletError: A ``compute`` takes other arguments than its kind of vertex gives.
    """
    for vertex in vertices:
        _check_signature(vertex, signatures[vertex.compute])
    entries = [entry_text(v, n, signatures[v.compute], aliasing=aliasing) for n, v in enumerate(vertices)]
    return "\n".join([with_calls(private(text)), f"@{VIRTUAL} = external constant ptr", *entries])


def optimise(text: str) -> str:
    """Text of the module after optimisation, all values named."""
    found = _optimised(text)
    direct = with_direct_calls(found)
    found = found if direct is None else _optimised(direct)
    # Optimising finds out divisors, and known divisors let more be optimised; a third round is not tried.
    again = with_known_divisors(found)
    return found if again is None else _optimised(again)


def _optimised(text: str) -> str:
    host = machine()
    module = _ready(text)
    if computes_in_double(text):  # before all else: what the optimiser makes of doubles is not what it makes of floats
        module = _ready(in_single_precision(_locals_as_values(module), MATH.__contains__))
    options = binding.PipelineTuningOptions(speed_level=2)
    # Costs are counted on scalar code with the loops that the program has; lanes are chosen later, where native code is
    # made.
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    passes = binding.create_pass_builder(host, options)
    manager = passes.getModulePassManager()
    manager.add_instruction_namer_pass()
    manager.run(module, passes)
    return str(module)


def _ready(text: str) -> Any:
    """The module of a text, for the host."""
    module = binding.parse_assembly(text, binding.create_context())
    module.triple = host_cpu().triple
    module.data_layout = str(machine().target_data)
    module.verify()
    return module


def _locals_as_values(module: Any) -> str:
    """Text of a module with calls put in place and locals made values, and nothing else done."""
    passes = binding.create_pass_builder(machine(), binding.PipelineTuningOptions(speed_level=1))
    manager = binding.create_new_module_pass_manager()
    manager.add_always_inliner_pass()
    manager.add_global_dead_code_eliminate_pass()
    manager.add_sroa_pass()
    manager.run(module, passes)
    return str(module)


@per_cpu
def machine() -> Any:
    """Target machine of the host, of no particular CPU."""
    initialise_targets()
    triple = host_cpu().triple
    return binding.Target.from_triple(triple).create_target_machine(cpu="x86-64" if host_cpu().is_x86 else "generic")


def _check_signature(vertex: VertexClass, signature: str) -> None:
    takes = signature.partition("(ptr")[2].rstrip(")").strip(", ")
    wanted = "i32" if vertex.kind == "multi" else ""
    if takes == wanted:
        return
    header = "bool compute(unsigned workerId)" if wanted else "bool compute()"
    raise CodeletError(
        f"compute of {vertex.kind} vertex {vertex.name} takes ({takes})", at=vertex.location, remedy=header
    )


def private(text: str) -> str:
    """Module without visible symbols but those added later, and without demands on alignment or the CPU."""
    text = _USED.sub("", COMDAT.sub("", text))  # both would keep functions that are in place everywhere
    text = _GROUP.sub(lambda g: f"attributes #{g[1]} = {{ {' '.join(_KEPT.findall(g[2]))} }}", text)
    text = _DEFINE.sub(lambda d: "define internal " + _in_place(d[1]), text)
    text = _GLOBAL.sub(r"\1internal \2", text)
    text = _DEFINED.sub(r"\1internal \2 ", _VISIBILITY.sub("", text))
    # Vectors lie as fields do, aligned like their elements only.
    text = _ACCESS.sub(lambda a: f"{a[1]}, align {_BYTES.get(a[2], 1)}", text)
    return _REFERENCE.sub("", text)


def unwritten(text: str, roots: Sequence[str]) -> set[str]:
    """Names of a module's variables that some functions reach and no code writes.

    Args:
        text: Text of the module.
        roots: Symbols of the functions.
    """
    kept = ", ".join(f"ptr {global_name(root)}" for root in roots)
    whole = VARIABLE.sub(lambda m: f"{m[1]} = internal global ", private(text))
    whole = f"{whole}\n@abele.kept = global [{len(roots)} x ptr] [{kept}]\n"
    module = binding.parse_assembly(whole, binding.create_context())
    manager = binding.create_new_module_pass_manager()
    manager.add_always_inliner_pass()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    manager.add_global_opt_pass()
    manager.run(module, binding.create_pass_builder(machine(), binding.PipelineTuningOptions(speed_level=1)))
    # What is only read has become a constant, or has been put in place of its reads; what is neither is written, or may
    # be: its address is somewhere.
    left = {m[1] for m in VARIABLE.finditer(str(module))}
    return {m[1] for m in VARIABLE.finditer(text)} - left


def _in_place(rest: str) -> str:
    """A definition's line, always to be put in place."""
    if " #" in rest:
        return re.sub(r" #(\d+)", r" alwaysinline #\1", rest, count=1)
    head, bracket, tail = rest.rpartition(")")
    return f"{head}{bracket} alwaysinline{tail}"
