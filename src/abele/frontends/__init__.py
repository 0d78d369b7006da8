"""Front ends: models of other frameworks, captured into a network."""
