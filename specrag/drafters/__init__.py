"""One module for each way to guess tokens."""
