"""Tool calls that wait until a person approves or denies them."""
