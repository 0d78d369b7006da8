"""Matrix products: which nests are some, and how they are cut into shares."""
