"""The update matrix: from every release to the working tree, for all targets and options."""
