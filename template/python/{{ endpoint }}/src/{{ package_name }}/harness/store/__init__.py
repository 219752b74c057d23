"""The session store: your own endpoint."""
