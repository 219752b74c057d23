"""The files that the vendor's models accept."""

from ..files import COMMON_TYPES

FILE_TYPES = COMMON_TYPES
MAX_DOCUMENTS = 100  # in a request, without texts
