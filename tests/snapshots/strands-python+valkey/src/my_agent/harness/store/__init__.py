"""The session store: Valkey or Redis."""
