"""Exports this project's session store as DeclaredStore."""

from .valkey import ValkeyStore as DeclaredStore

__all__ = ["DeclaredStore"]
