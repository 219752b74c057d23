"""Facts that a model finds in committed turns, for memories that keep what they are given."""
