"""Seeded faults: a render's own tests are good enough when they fail for each of these."""
