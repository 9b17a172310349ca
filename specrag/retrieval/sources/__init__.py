"""Files, folders and archives become documents."""
