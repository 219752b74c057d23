"""Helpers that several rooms of tests share, and the tests of these."""
