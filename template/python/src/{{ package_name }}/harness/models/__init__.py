"""Model clients and their common code."""
