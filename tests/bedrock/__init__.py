"""Knowledge bases of Amazon Bedrock for tests."""
