"""Memory collections: declared in files, checked, and kept in a store of the owner's choice."""
