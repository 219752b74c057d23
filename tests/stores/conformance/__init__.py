"""The conformance suite once more, with the sessions of each target in each store."""
