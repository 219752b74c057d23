"""The session store: Amazon S3."""
