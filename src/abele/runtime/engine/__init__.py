"""The engine, its options, its record of runs, and its names of Poplar."""
