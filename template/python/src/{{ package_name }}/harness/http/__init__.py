"""The HTTP server: routes, requests and process."""
