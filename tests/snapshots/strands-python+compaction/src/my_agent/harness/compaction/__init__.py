"""A summary in place of the messages that a long session no longer holds."""
