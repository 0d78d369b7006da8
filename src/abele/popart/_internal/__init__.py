"""``popart._internal``: the few private names that public programs read."""
