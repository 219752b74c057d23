"""The session store of this project, under the name by which it is opened."""

from .endpoint import EndpointStore as DeclaredStore

__all__ = ["DeclaredStore"]
