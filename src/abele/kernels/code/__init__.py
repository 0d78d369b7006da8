"""LLVM code of loop nests and of the functions that run several of them as one leaf."""
