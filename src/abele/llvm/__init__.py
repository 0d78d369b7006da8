"""LLVM tools that codelets and host kernels share: the host CPU, numeric helpers as IR, and a JIT with a disk cache.

- :mod:`~abele.llvm.host`: name, features, vector width of the CPU that code is generated for.
- :mod:`~abele.llvm.emit`: short names for constants, intrinsics and lanes.
- :mod:`~abele.llvm.narrow`: 16-bit floats to f32 and back.
- :mod:`~abele.llvm.math`: exp, log, tanh, … as polynomials.
- :mod:`~abele.llvm.random`: the counter-based random numbers, in IR and in NumPy.
- :mod:`~abele.llvm.flush`: denormals flushed to zero.
- :mod:`~abele.llvm.jit`: IR to native code.
"""
