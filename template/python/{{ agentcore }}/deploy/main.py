"""Starts the agent where AgentCore gets its code as a zip file."""

import os

from app.main import cli

os.environ.setdefault("HOST", "0.0.0.0")
cli(["serve"])
