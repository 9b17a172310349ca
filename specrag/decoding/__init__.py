"""The speculative decoding algorithm: propose, verify, commit."""
