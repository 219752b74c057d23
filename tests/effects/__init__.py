"""Effects of tools, against a service that counts the calls: no committed call is lost."""
