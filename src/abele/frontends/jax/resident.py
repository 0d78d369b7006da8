"""Arrays that stay on the device: results in the place of donated arguments.

A function that donates its state gives the new state where the old one was. The result is a :class:`DeviceArray`, which
is fetched when somebody looks at it. Given to the next call it moves nowhere; that call donates it, so it is deleted,
as in JAX. Each donated argument has a :class:`DonatedSlot` of the compiled program, which knows what is there now.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
import numpy.typing as npt
from jax._src import core, dtypes
from jax._src.array import ArrayImpl
from jax._src.interpreters import mlir, pxla

from abele.arrays import Array
from abele.frontends.jax.errors import DonatedError
from abele.frontends.jaxpr import is_key
from abele.frontends.jaxpr.types import key_words
from abele.session import SharedArray
from abele.session.arrays import CHANGES


class DonatedSlot(SharedArray):
    """Place of a donated argument in the memory of a program.

    Args:
        name: Name of the argument in the network.
        shape: Its dimensions there.
        aval: Its type in JAX.

    Attributes:
        name: Its name there.
        aval: Its type in JAX.
        kind: Type of the array in it: of keys, that of their words.
    """

    notes_writes: ClassVar[bool] = True

    def __init__(self, name: str, shape: tuple[int, ...], aval: Any) -> None:
        self.name, self._shape, self.aval = name, shape, aval
        self.kind = core.ShapedArray(shape, np.uint32) if is_key(aval.dtype) else aval.update(weak_type=False)
        self.fetch: Callable[[str], Array] | None = None
        self._version = 0
        self._given: Array | None = None
        self._now: Callable[[], DeviceArray | None] = lambda: None

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        return self._shape

    @property
    def now(self) -> DeviceArray | None:
        """The array that is in the place, if somebody still has it."""
        return self._now()

    def give(self, values: Array) -> None:
        """Take values that are to be uploaded; the array that was here keeps its own on the host."""
        self.save()
        self._given = values
        self._version += 1

    def save(self) -> None:
        """Bring the array that is here to the host, if somebody still has it."""
        found = self._now()
        if found is not None and not found.is_deleted():
            found.bring_to_host()
        self._now = lambda: None

    def result(self) -> DeviceArray:
        """The array that a run has left here; the one before it is deleted."""
        before = self._now()
        if before is not None:
            before.delete()
        self._given = None
        made = DeviceArray(self)
        self._now = weakref.ref(made)
        return made

    def values(self) -> Array:
        """Values to be uploaded."""
        assert self._given is not None, f"{self.name} is uploaded without values"
        return self._given

    def assign(self, values: npt.ArrayLike) -> None:
        """Keep the values of a device that is left."""
        found = self._now()
        if found is not None and not found.is_deleted():
            found.keep(np.asarray(values))
        self._now = lambda: None
        self._version += 1
        CHANGES.note()


class DeviceArray:
    """An array on the device.

    It is an array to JAX and NumPy: ``jnp`` functions, operators, indexing and ``np.asarray`` fetch its values, once.
    Once it has been donated, it has none.
    """

    __array_priority__ = 100
    _host: Array | None = None
    _copy: Any = None

    def __init__(self, slot: DonatedSlot) -> None:
        self._slot: DonatedSlot | None = slot
        self.aval = slot.kind

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """A kind of ``jax.Array``, to whom asks."""
        return jax.Array

    # --- what is known without a look ---------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        return self.aval.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        """False: a result in memory has a type of its own."""
        return False

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.aval.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.size * int(self.aval.dtype.itemsize)

    # --- its life -----------------------------------------------------------------------------------------------------

    def is_deleted(self) -> bool:
        """True once it has been donated, or deleted."""
        return self._slot is None and self._host is None

    def delete(self) -> None:
        """Let go of the values."""
        self._slot = self._host = self._copy = None

    def keep(self, values: Array) -> None:
        """Have values on the host, and no place on a device."""
        self._host = values.astype(self.aval.dtype, copy=False)
        self._slot = None

    def bring_to_host(self) -> Array:
        """Its values on the host, after which it needs its place no more.

        Raises:
            DonatedError: It has been donated.
        """
        if self._slot is not None:
            values = self.fetched()
            self._host, self._slot = values, None
        return self.fetched()

    def fetched(self) -> Array:
        """Its values.

        Raises:
            DonatedError: It has been donated.
        """
        if self._host is None:
            slot = self._slot
            if slot is None or slot.fetch is None:
                raise DonatedError(
                    f"Array has been deleted with shape={self.aval.str_short()}",
                    because="it was donated to a call, whose result is in its place",
                    remedy="use the result, or copy the array before the call: jnp.array(x)",
                )
            self._host = slot.fetch(slot.name).astype(self.aval.dtype, copy=False)
        return self._host

    def block_until_ready(self) -> DeviceArray:
        """The array itself: a call ends when its results are there.

        Raises:
            DonatedError: It has been donated.
        """
        if self.is_deleted():
            self.fetched()
        return self

    # --- its values ---------------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = np.asarray(self.fetched(), dtype)
        if copy and found is self._host:
            return found.copy()
        view = found.view()
        view.flags.writeable = found is not self._host
        return view

    def __jax_array__(self) -> Any:
        if self._copy is None:
            self._copy = jax.device_put(self.fetched())
        return self._copy

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__jax_array__(), name)

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"DeviceArray({self.aval.str_short()}, deleted)"
        return repr(self.__jax_array__()).replace("Array(", "DeviceArray(", 1)

    def __reduce__(self) -> Any:
        return np.asarray, (np.array(self.fetched()),)

    def __copy__(self) -> Any:
        return self.__jax_array__()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__jax_array__().copy()


class Keys:
    """Random keys on the device: JAX's own kind of array of keys, over words that stay there.

    Args:
        aval: Type of the keys.
    """

    def __init__(self, aval: Any) -> None:
        sample = jax.random.wrap_key_data(np.zeros(key_words(aval.dtype), np.uint32), impl=aval.dtype._impl.name)
        self._type, self._impl = type(sample), sample._impl

    def __call__(self, words: Any) -> Any:
        """Keys of words, an array of JAX's or one on the device."""
        return self._type(self._impl, words)


def words_of(keys: Any) -> Any:
    """Words of keys, where they are; of anything else, itself."""
    return getattr(keys, "_base_array", keys)


def _delegate(name: str) -> None:
    """Let an operator be that of the copy in JAX."""

    def operation(self: DeviceArray, *operands: Any) -> Any:
        given = (o.__jax_array__() if type(o) is DeviceArray else o for o in operands)
        return getattr(self.__jax_array__(), name)(*given)

    operation.__name__ = name
    setattr(DeviceArray, name, operation)


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or", "xor")
_SHIFTS = ("lshift", "rshift")
_COMPARED = ("lt", "le", "eq", "ne", "gt", "ge")
_ONE = ("neg", "pos", "abs", "invert", "round", "bool", "int", "float", "complex", "index", "format")
_MEMBERS = ("getitem", "len", "iter", "contains", "reversed", "dlpack", "dlpack_device")
for _name in (*_BINARY, *_SHIFTS, *(f"r{n}" for n in (*_BINARY, *_SHIFTS)), *_COMPARED, *_ONE, *_MEMBERS):
    _delegate(f"__{_name}__")

DeviceArray.__hash__ = None  # type: ignore[assignment]

# JAX asks by the type of an object, and has no public place to say what a type of array is.


def _placed(arrays: list[Any], *rest: Any) -> Any:
    return pxla.shard_arg_handlers[np.ndarray]([a.fetched() for a in arrays], *rest)


def _constant(array: DeviceArray, aval: Any) -> Any:
    return mlir.get_constant_handler(ArrayImpl)(array.__jax_array__(), aval)


mlir.register_constant_handler(DeviceArray, _constant)
core.pytype_aval_mappings[DeviceArray] = operator.attrgetter("aval")
pxla.shard_arg_handlers[DeviceArray] = _placed
dtypes.canonicalize_value_handlers[DeviceArray] = lambda x, **_: x
