"""Files packed into one, read without unpacking them to disk."""
