"""Sessions: their turns, their queue and the store of this process."""
