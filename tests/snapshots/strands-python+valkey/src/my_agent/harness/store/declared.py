"""The session store of this project, under the name by which it is opened."""

from .valkey import ValkeyStore as DeclaredStore

__all__ = ["DeclaredStore"]
