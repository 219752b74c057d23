"""The commands of a render, in terminals and with closed streams."""
