"""Evaluation sets: files of many formats become questions with answers and documents."""
