"""The command of the project."""

from .harness.commands import cli

__all__ = ["cli"]
