"""Model garden: demonstrations on real or simulated data, run by the ``abele demo`` command."""
