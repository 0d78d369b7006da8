"""Schedule of one loop nest: the order of its loops, its vector lanes, its register tile and its packed panel."""
