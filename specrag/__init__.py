"""RAG that drafts before it decodes and thinks before it searches."""

__version__ = "0.1.0"
