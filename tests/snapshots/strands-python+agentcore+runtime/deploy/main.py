"""Starts the agent in AgentCore if the code is a zip file."""

import os

from my_agent.main import cli

os.environ.setdefault("HOST", "0.0.0.0")
cli(["serve"])
