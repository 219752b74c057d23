"""Background turns: they continue after their client has left, and clients follow them."""
