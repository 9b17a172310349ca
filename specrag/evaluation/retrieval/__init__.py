"""How well the documents that answer a question are found."""
