"""Extract facts from committed turns with a model, for memories that do not extract records."""
