"""The examples: a folder for each, with what an owner changed; and the tests of all."""
