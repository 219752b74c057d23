"""The types of files that the vendor's models accept."""

from ..files import FORMATS

FILE_TYPES = tuple(FORMATS)
