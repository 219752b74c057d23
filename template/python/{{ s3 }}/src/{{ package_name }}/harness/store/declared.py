"""Exports this project's session store as DeclaredStore."""

from .s3 import S3Store as DeclaredStore

__all__ = ["DeclaredStore"]
