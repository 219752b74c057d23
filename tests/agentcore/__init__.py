"""A server of Amazon Bedrock AgentCore Memory that keeps AWS's own contract, for tests."""
