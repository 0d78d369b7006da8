"""From the front end's code to one plain function per vertex: everything inlined, scalar, loops unchanged.

What is left is what both the native code and the counting start from. It depends neither on the compiler that was
there nor on the host CPU: the front end optimises nothing, and the passes here are told of no CPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite.binding as binding

from abele.codelet.cpp.defined import with_calls, with_known_divisors
from abele.codelet.cpp.entry import VIRTUAL, entry_text
from abele.codelet.cpp.library import MATH
from abele.codelet.cpp.metadata import global_name
from abele.codelet.cpp.pointers import with_direct_calls
from abele.codelet.cpp.reflect import VertexClass
from abele.codelet.cpp.single import computes_in_double, in_single_precision
from abele.errors import CodeletError, CodeletLoadError
from abele.llvm.host import host_cpu

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


@cache
def machine() -> Any:
    """Target machine of the host, of no particular CPU."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
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
