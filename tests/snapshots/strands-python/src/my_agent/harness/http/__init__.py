"""The HTTP server: its routes, its requests and its process."""
