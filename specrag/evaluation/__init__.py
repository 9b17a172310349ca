"""Offline evaluation: what is measured, how, and how it is reported."""
