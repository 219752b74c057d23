"""Callers that a token names, tried from outside against an issuer of this machine."""
