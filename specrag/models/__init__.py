"""What can be asked of a language model."""
