"""A second model, which answers where the first one fails."""
