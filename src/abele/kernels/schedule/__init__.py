"""Schedule of one loop nest: the order of its loops, its vector lanes, its register tile and what is packed for it."""
