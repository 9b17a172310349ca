"""Text in, scored passages out."""
