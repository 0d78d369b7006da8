"""Starting the ranks of a job, showing their output, and ending all of them when one is lost.

The process of ``abele run`` starts ``mpiexec``, which starts a ``keeper`` for each rank, on one host or many. A
keeper starts the rank's program in a process group of its own, and tells what it prints, how far it is and how it ended
through its standard output, which ``mpiexec`` hands on.
"""
