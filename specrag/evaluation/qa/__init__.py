"""Question answering, offline: many questions, several modes, one report."""
