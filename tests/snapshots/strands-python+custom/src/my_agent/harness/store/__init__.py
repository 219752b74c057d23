"""The session store: an endpoint of your own."""
