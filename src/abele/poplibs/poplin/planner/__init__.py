"""Plans: how a contraction is split over the tiles, found by costing every split."""
