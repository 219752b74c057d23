"""What a render costs, measured side by side with a floor."""
