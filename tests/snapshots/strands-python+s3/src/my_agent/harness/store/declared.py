"""The session store of this project, under the name by which it is opened."""

from .s3 import S3Store as DeclaredStore

__all__ = ["DeclaredStore"]
