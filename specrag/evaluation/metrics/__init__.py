"""Measures of answers, passages and citations, and how sure they are."""
