"""One question, one cited answer."""
