"""The speed of decoding: this engine plainly and with drafters, and other engines beside it."""
