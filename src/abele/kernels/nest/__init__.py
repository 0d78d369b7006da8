"""Host kernels: loop nests over its operands as data, their meaning in NumPy, and how operands are bound."""
