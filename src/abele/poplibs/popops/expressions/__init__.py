"""Element-wise expressions before they meet tensors: operations, types, fusion, codelets and host kernels."""
