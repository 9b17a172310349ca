"""Drafters learned for a target: the text they learn from, the loop, and each kind of head."""
