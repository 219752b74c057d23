"""The files that the vendor's models accept."""

from ..files import FORMATS

FILE_TYPES = tuple(FORMATS)
MAX_DOCUMENTS = 5  # in a request, without texts
