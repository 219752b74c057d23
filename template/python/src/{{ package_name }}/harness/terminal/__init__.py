"""The command `chat`: a conversation in a terminal or a pipe."""
