"""The types of files that the vendor's models accept."""

from ..files import COMMON_TYPES

FILE_TYPES = COMMON_TYPES
