"""Readers of file formats, a module a format."""
