"""What maintainers and CI run around a render: `python -m hooks --help`. Copier never runs it."""
