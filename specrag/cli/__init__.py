"""The command line: one file for each noun, no logic."""
