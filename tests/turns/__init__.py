"""What code of owners does with turns, inside renders."""
