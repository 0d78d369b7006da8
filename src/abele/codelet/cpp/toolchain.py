"""The C++ compiler: clang where there is one, else the one that the ``ziglang`` wheel carries."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from abele.codelet.cpp.braces import Region, directives_alone, regions
from abele.codelet.cpp.library import MATH
from abele.codelet.cpp.reflect import refusal_symbol
from abele.errors import CodeletError, CodeletLoadError, CodeletParseError

# Messages of the C++ compiler, as errors of ours.

_MESSAGE = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>.*)$",
    re.M,
)
_NOTE = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):(?P<column>\d+): note: in instantiation of ", re.M)
_BUILTIN = re.compile(r"'(?P<name>__builtin_ipu_\w+|ipu::\w+)'")
_DIAGNOSTICS_MISSING = re.compile(r"'(?P<name>[^']+)' file not found")
_ASSEMBLY = ("in asm", "asm constraint", "assembly", "inline asm")
USED = "__attribute__((used)) "
"""Mark of ``compute`` before it is compiled; messages do not show it."""

HARDWARE_REMEDY = "put it between #ifdef __IPU__ and #else, with portable C++ after #else; __IPU__ is not defined here"
_SNIPPET_LINES = 4


@dataclass(frozen=True)
class Message:
    """An error that the compiler found in the user's file.

    Attributes:
        error: Error of ours that it becomes.
        places: Lines and columns of the user's file that it is about: its own place, and that of the code that asked
            for it.
    """

    error: CodeletError
    places: tuple[tuple[int, int], ...]


def compile_error(said: str, name: str, source: str) -> CodeletError:
    """The error that the compiler's output means.

    Args:
        said: Its output.
        name: The user's file.
        source: The temporary file that it was given.
    """
    messages = compile_messages(said, name, source)
    if not messages:
        return CodeletLoadError(
            f"the C++ compiler refused {name}",
            because=said.replace(source, name).strip()[:2000] or "it said nothing",
            remedy="check the flags that were given with the file",
        )
    first = next((m.error for m in messages if type(m.error) is CodeletError), messages[0].error)
    if type(first) is CodeletParseError and len(messages) > 1:
        first.remedy = f"there are {len(messages)} errors; this is the first"
    return first


def compile_messages(said: str, name: str, source: str) -> list[Message]:
    """The errors in the compiler's output, in its order.

    Args:
        said: Its output.
        name: The user's file.
        source: The temporary file that it was given.
    """
    said = said.replace(source, name).replace(USED, "")
    heads = list(_MESSAGE.finditer(said))
    ends = [*(h.start() for h in heads), len(said)][1:]
    return [_message(h, said[h.start() : end], name) for h, end in zip(heads, ends, strict=True)]


def _message(found: re.Match[str], said: str, name: str) -> Message:
    at, text = f"{found['file']}:{found['line']}", found["text"]
    here = [(int(found["line"]), int(found["column"]))] if found["file"] == name else []
    asked = [(int(n["line"]), int(n["column"])) for n in _NOTE.finditer(said) if n["file"] == name]
    places = tuple(here or asked)
    if not here and asked:
        at = f"{name}:{asked[0][0]}"
    builtin, missing = _BUILTIN.search(text), _DIAGNOSTICS_MISSING.search(text)
    if missing is not None:
        boost = missing["name"].startswith("boost/")
        error: CodeletError = CodeletLoadError(
            f"header {missing['name']!r} was not found",
            at=at,
            because="of Boost there are multi_array, optional and variant, as names for headers" if boost else text,
            remedy="give its directory: include=[…] or flags='-I…'",
        )
        return Message(error, ())
    if builtin is not None:
        error = hardware_only(builtin["name"], "an instruction without a portable meaning here", at)
    elif any(word in text for word in _ASSEMBLY):
        error = hardware_only("inline assembly", f"the compiler says: {text}", at)
    else:
        error = CodeletParseError(text, at=at, because=_snippet(said, len(found[0])))
    return Message(error, places)


def hardware_only(what: str, reason: str, at: str | None) -> CodeletError:
    """The refusal of something that only the hardware can run."""
    return CodeletError(f"{what} runs on the hardware only", at=at, because=reason, remedy=HARDWARE_REMEDY)


def _snippet(said: str, start: int) -> str | None:
    lines = [line for line in said[start:].splitlines() if line.strip()][:_SNIPPET_LINES]
    return "\n".join(lines) or None


# Headers of the host's libraries: codelet files include them for their host half, and find them empty.
#
# A program in one file includes ``poplar/Graph.hpp`` and ``popops/ElementWise.hpp`` before its codelets. Nothing of
# them can be used in a codelet, so that any such header that is nowhere to be found is an empty file.

LIBRARIES = (
    "gccs",
    "gcl",
    "popart",
    "popdist",
    "popfloat",
    "poplar",
    "poplibs_support",
    "poplibs_test",
    "poplin",
    "popnn",
    "popops",
    "poprand",
    "popsolver",
    "popsparse",
    "popsys",
    "poputil",
    "pva",
)
"""Directories of headers that belong to the host."""
_INCLUDED = re.compile(rf'^[ \t]*#[ \t]*include[ \t]*[<"]((?:{"|".join(LIBRARIES)})/[^">]+)[">]', re.M)
_MISSING = re.compile(rf"'((?:{'|'.join(LIBRARIES)})/[^']+)' file not found")
_TEXT = "#pragma once\n"


def write_stand_ins(text: str, folder: Path) -> None:
    """Write an empty header for each one of a host library that a source mentions; to be looked for last."""
    for name in set(_INCLUDED.findall(text)):
        _write(name, folder)


def write_missing(said: str, folder: Path) -> bool:
    """Write an empty header for the one that a compiler did not find, if it belongs to the host.

    Args:
        said: The compiler's output.
        folder: Folder of such headers.

    Returns:
        True if there is one more.
    """
    found = _MISSING.search(said)
    return found is not None and _write(found[1], folder)


def _write(name: str, folder: Path) -> bool:
    path = (folder / name).resolve()
    if folder.resolve() not in path.parents or path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_TEXT, encoding="utf-8")
    return True


# Source of a file without the parts that the compiler refuses: the rest is compiled all the same.
#
# A function with an error gets a body that calls a symbol spelling the error (:mod:`~abele.codelet.cpp.reflect`), a
# vertex class whose declarations have errors becomes one without fields that does so. Errors outside both are the
# file's.

_VERTEX = re.compile(r":[^{]*\b(\w*Vertex\w*)\b")
_MULTI = re.compile(r"\bMultiVertex\b")
_STUB = "abele_refused_"


def without_errors(text: str, messages: Sequence[Message]) -> str:
    """The source with the code that the messages are about replaced; lines stay where they are.

    Args:
        text: The source.
        messages: Messages of the compiler about it.

    Raises:
        CodeletError: That of a message which is about neither a function nor a vertex class.
    """
    found = list(regions(text))
    lines = [0, *(m.end() for m in re.finditer("\n", text))]
    replaced: dict[Region, Message] = {}
    for message in messages:
        places = [lines[line - 1] + column - 1 for line, column in message.places if 0 < line <= len(lines)]
        region = next((r for at in places if (r := _region(found, at)) is not None), None)
        if region is None:
            raise message.error
        # Of two heads that share an end (both sides of an #if) the latter's, so that both keep their own.
        replaced.setdefault(max((r for r in found if r.end == region.end), key=lambda r: r.begin), message)
    return _replaced(text, replaced)


def _region(found: Sequence[Region], at: int) -> Region | None:
    """The function that a place is in, else the vertex class."""
    around = [r for r in found if r.begin <= at <= r.end]
    outer_first = sorted(around, key=lambda r: r.begin)
    body = next((r for r in outer_first if r.kind not in ("scope", "class")), None)
    if body is not None and body.kind == "function" and _STUB not in body.head:
        return body
    return next((r for r in outer_first if r.kind == "class" and _VERTEX.search(r.head)), None)


def _replaced(text: str, replaced: dict[Region, Message]) -> str:
    outermost = [r for r in replaced if not any(o.begin < r.begin and r.end < o.end for o in replaced)]
    for region in sorted(outermost, key=lambda r: -r.begin):
        # What stands at the end is compiled whichever side of the conditions within is.
        lines = directives_alone(text, region.begin + 1, region.end)
        text = text[: region.begin + 1] + lines + _stub(region, replaced[region]) + text[region.end :]
    return text


def _stub(region: Region, message: Message) -> str:
    name = f"{_STUB}{region.begin}"
    body = f' void {name}() __asm__("{refusal_symbol(message.error)}"); {name}(); __builtin_unreachable(); '
    if region.kind == "function":
        return body
    worker = "unsigned" if _MULTI.search(region.head) else ""
    return f" public: bool compute({worker}) {{{body}}} "


HEADERS = Path(__file__).parent / "include"
"""Our own ``poplar/Vertex.hpp`` and companions."""
FLAGS = [
    "-std=c++17",
    "-O2",
    "-w",
    "-Wno-invalid-constexpr",
    "-ferror-limit=0",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fcx-limited-range",
    "-fdebug-compilation-dir=.",
    "-fno-builtin-memcpy",
    "-fno-builtin-memset",
    "-fno-builtin-memmove",
    "-fno-strict-float-cast-overflow",
    "-fno-access-control",
    "-fno-threadsafe-statics",
    "-fno-sanitize=all",
    "-fno-stack-protector",
    "-DNDEBUG",
    "-DPOPLAR_HOST_CODELET",
    "-D__POPC__=1",
    "-D__POPC_MAJOR__=3",
    "-D__POPC_MINOR__=3",
    "-D__POPC_PATCHLEVEL__=0",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-disable-llvm-passes",
    "-fstandalone-debug",
    "-Xclang",
    "-debug-info-kind=unused-types",
    "-Xclang",
    "-dwarf-version=5",
    "-emit-llvm",
]
"""Front end alone, with all types described; floats and halves rounded after every operation."""
_FLOAT_LIMITS = {
    "MAX": "3.40282347e+38",
    "MIN": "1.17549435e-38",
    "EPSILON": "1.19209290e-7",
    "DENORM_MIN": "1.40129846e-45",
    "DIG": "6",
    "DECIMAL_DIG": "9",
    "MANT_DIG": "24",
    "MAX_EXP": "128",
    "MIN_EXP": "(-125)",
    "MAX_10_EXP": "38",
    "MIN_10_EXP": "(-37)",
}
_LIMITS = [f"-D__{type_}_{k}__={v}" for type_ in ("DBL", "LDBL") for k, v in _FLOAT_LIMITS.items()]
"""Limits of double in ``<cfloat>`` and ``std::numeric_limits``: those of float, which it is on the machine."""
_IPUDEF = "-includeipudef.h"
_ALIGNMENT = "-includepoplar/Alignment.hpp"
_TARGET_FLAGS = ("-target", "-march", "-mcpu", "--target", "-O")
_STANDARD = {
    "algorithm": "min|max|sort|swap|fill|fill_n|copy|copy_n|clamp|minmax|for_each|find|find_if|count|count_if|transform"
    "|reverse|any_of|all_of|none_of|equal|max_element|min_element|minmax_element|lower_bound|upper_bound|rotate|replace"
    "|generate|iter_swap|partial_sort|nth_element|stable_sort|remove_if|unique|is_sorted|binary_search",
    "array": "array",
    "bitset": "bitset",
    "cmath": "sqrt|exp|log|pow|fabs|floor|ceil|round|tanh|sin|cos|isnan|isinf|isfinite|fmod|fma|atan2|lround|copysign"
    "|abs|exp2|log2|log10|log1p|expm1|cbrt|hypot|trunc|rint|nearbyint|tan|asin|acos|atan|sinh|cosh|erf|erfc|fmin|fmax"
    "|ldexp|frexp|modf|signbit|remainder|sqrtf|expf|logf|powf|fabsf|sinf|cosf|tanhf|lrint",
    "complex": "complex|conj|polar|norm",
    "cstdio": "printf|puts|putchar",
    "cstdlib": "abs|exit|abort|malloc|free|rand|div|size_t",
    "cstring": "memcpy|memset|memmove|memcmp|strlen|strcmp",
    "functional": "function|plus|minus|multiplies|less|greater|ref|invoke",
    "initializer_list": "initializer_list",
    "iterator": "begin|end|distance|advance|next|prev|size",
    "limits": "numeric_limits",
    "numeric": "accumulate|iota|gcd|lcm|inner_product|reduce|partial_sum",
    "optional": "optional|nullopt",
    "string_view": "string_view",
    "tuple": "tuple|make_tuple|tie|tuple_size|apply|forward_as_tuple",
    "utility": "pair|make_pair|move|forward|swap|exchange|index_sequence|make_index_sequence|integer_sequence|declval",
    "variant": "variant|visit|monostate",
}
"""Standard headers that other compilers include with others, by the missing name of ``std``."""
_C_NAMES = {
    "cassert": "assert",
    "cfloat": "FLT_MAX|FLT_MIN|FLT_EPSILON|DBL_MAX|DBL_MIN|DBL_EPSILON",
    "climits": "U?(?:CHAR|SHRT|INT|LONG|LLONG)_(?:MAX|MIN)|CHAR_BIT",
    "cmath": "|".join([_STANDARD["cmath"], *sorted(MATH), r"M_\w+", "INFINITY", "NAN", "HUGE_VALF?"]),
    "cstdio": "printf|puts|putchar|stdout|stderr|fprintf|fflush|snprintf",
    "cstdlib": "exit|abort|_Exit|abs|labs|malloc|calloc|free|rand|srand|atoi|EXIT_[A-Z]+",
    "cstring": "mem(?:cpy|set|move|cmp)|str(?:len|n?cmp|n?cpy)",
}
"""The same for C: names without ``std::``."""
_OURS = {
    "-Drptsize_t=unsigned": "rptsize_t",
    _ALIGNMENT: "WORKER_ALIGN|WORKER_FUNC_ALIGN|ALWAYS_INLINE",
    "-includetileimplconsts.h": r"CTXT_\w+|TMEM_\w+|CSR_\w+",
    "-includeabele/builtins.hpp": r"__builtin_ipu_\w+",
    "-includeipu_vector_math": "ipu",
    "-includeabele/quarter.hpp": "quarter_metadata|MetadataType|QuarterMetadata|unpackMetadata|packMetadata",
    _IPUDEF: "(?:half|float|[us]?char|u?short|u?int|longlong)[248]",
}
"""Names that the tile's compiler or one of its headers has. They come only where they are missing, since programs have
some of their own."""
_UNKNOWN = "(?:unknown type name|undeclared identifier|undeclared template name|unknown class name)"
_SECOND_TRIES = (
    (re.compile("deduced conflicting types"), "-DABELE_SIZE_TYPE=std::size_t"),
    *(
        (re.compile(rf"no (?:member|template|type)[\w ]* named '(?:{names})' in namespace 'std'"), f"-include{header}")
        for header, names in _STANDARD.items()
    ),
    *((re.compile(rf"{_UNKNOWN} '(?:{names})'"), f"-include{header}") for header, names in _C_NAMES.items()),
    *((re.compile(rf"{_UNKNOWN} '(?:{names})'"), flag) for flag, names in _OURS.items()),
    # Where an attribute's macro stands the compiler may expect anything: it shows the line.
    (
        re.compile(r"^ *\d+ \| .*\b(?:WORKER_ALIGN|WORKER_FUNC_ALIGN|ALWAYS_INLINE)\b", re.M),
        "-includepoplar/Alignment.hpp",
    ),
    (re.compile(r"no member named '\w+' in namespace 'ipu'"), "-includeipu_vector_math"),
    (re.compile("cannot use 'throw' with exceptions disabled"), "-includeabele/throw.hpp"),
)
"""Messages, and the flag that mends each. ``size()`` meets a ``size_t``, one type on the tile, two here, and becomes
one; a header that other compilers bring is brought.
"""
_ROUNDS = 20
"""Times that a file is compiled, each without the parts with errors of the time before."""
_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that makes LLVM bitcode.

    Attributes:
        command: Command that starts it.
        version: Text that tells its versions apart.
    """

    command: tuple[str, ...]
    version: str


@cache
def find_compiler() -> Compiler:
    """The compiler that is there.

    Raises:
        CodeletLoadError: There is none.
    """
    clang = shutil.which("clang++")
    if clang is not None:
        said = subprocess.run([clang, "--version"], capture_output=True, text=True, check=False).stdout
        return Compiler((clang,), said.strip())
    if importlib.util.find_spec("ziglang") is not None:
        version = importlib.metadata.version("ziglang")
        return Compiler((sys.executable, "-m", "ziglang", "c++"), f"ziglang {version}")
    raise CodeletLoadError(
        "C++ codelets need a C++ compiler, and there is none",
        because="clang++ is not on the path, and the package ziglang is not installed",
        remedy='pip install "abele[cpp]"',
    )


def compile_to_bitcode(text: str, name: str, flags: Sequence[str], include: Sequence[str]) -> bytes:
    """LLVM bitcode of C++ source, not optimised.

    Functions and vertex classes that the compiler does not take are replaced by what spells their error
    (:mod:`~abele.codelet.cpp.toolchain`).

    Args:
        text: The source.
        name: Path of its file, for messages and for headers beside it.
        flags: The user's own flags; those for a target or an optimisation level are left out.
        include: Directories with headers.

    Raises:
        CodeletParseError: The source is not valid, outside functions and vertex classes.
        CodeletError: It uses there what only the hardware has.
        CodeletLoadError: A header is missing, or the compiler refuses a flag.
    """
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="abele-cpp-") as folder:
        source, made = Path(folder) / "codelet.cpp", Path(folder) / "codelet.bc"
        beside = str(Path(name).resolve().parent)
        own = [f"-I{d}" for d in include] + ["-iquote", beside, f"-I{HEADERS}"]
        command = [*compiler.command, *FLAGS, *_LIMITS, *host_flags(flags), *own, "-c", str(source), "-o", str(made)]
        # Each round takes out what the round before said. An error may hide others (a class that is replaced has no
        # members), so it is the first round's that is raised where one of a later round cannot be taken out.
        first: CodeletError | None = None
        for _ in range(_ROUNDS):
            source.write_text(f'#line 1 "{name}"\n{text}', encoding="utf-8")
            done = _compiled(command, text, folder)
            if done.returncode == 0 and made.exists():
                return made.read_bytes()
            said = done.stderr or done.stdout
            messages = compile_messages(said, name, str(source))
            try:
                text = without_errors(text, messages)
            except CodeletError as outside:
                raise first or outside from None
            first = first or compile_error(said, name, str(source))
            if not messages:
                break
        raise first or CodeletLoadError(f"the C++ compiler refused {name}")


def _compiled(command: list[str], text: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Result of a compiler command, repeated as long as its output has a remedy."""
    last = Path(folder) / "last"
    write_stand_ins(text, last)
    command = [*command, "-idirafter", str(last)]
    done = _run(command, folder)
    while done.returncode != 0:
        said = done.stderr
        flags = [flag for words, flag in _SECOND_TRIES if flag not in command and words.search(said)]
        if not flags and not write_missing(said, last):
            return done
        command += flags
        done = _run(command, folder)
    return done


def host_flags(flags: Sequence[str]) -> list[str]:
    """The user's flags without those that are meant for the tile's compiler: targets and optimisation levels."""
    kept, skip = [], False
    for flag in flags:
        if skip or flag.startswith(_TARGET_FLAGS):
            skip = not skip and flag in ("-target", "--target")
            continue
        kept.append(flag)
    return kept


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C", "NO_COLOR": "1"}
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=environment,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CodeletLoadError(f"the C++ compiler did not run: {error}", at=" ".join(command[:4])) from error
