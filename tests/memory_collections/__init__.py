"""Memory collections, in both languages: the rules of `check`, ranges and versions."""
