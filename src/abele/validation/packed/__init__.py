"""Packing as it was published: numbers of packs, what packs cost and save, and what un-padding saves instead."""
