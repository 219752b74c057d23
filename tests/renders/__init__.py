"""A render as a project: clean under strict tools, tested offline, extended by its owner."""
