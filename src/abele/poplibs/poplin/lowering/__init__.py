"""From a plan to supersteps: storage orders, tile assignment, vertices, sums of partials, the calls around it."""
