"""How one loop nest runs: the order of its loops, its vector lanes, its register tile and what is packed for it."""
