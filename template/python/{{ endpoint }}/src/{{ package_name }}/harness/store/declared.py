"""Exports this project's session store as DeclaredStore."""

from .endpoint import EndpointStore as DeclaredStore

__all__ = ["DeclaredStore"]
