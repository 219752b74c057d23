"""The page for a conversation with the agent."""
