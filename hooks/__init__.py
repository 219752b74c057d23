"""Commands for maintainers and CI: `python -m hooks --help`. Copier never runs them."""
