"""Bound kernels as tasks over spaces, and the passes from tasks to tasks and from tasks to loop nests."""
