"""A fallback model for calls that the first model fails."""
