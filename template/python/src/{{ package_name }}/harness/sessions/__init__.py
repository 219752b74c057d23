"""Sessions: turns, queues and the in-memory store."""
