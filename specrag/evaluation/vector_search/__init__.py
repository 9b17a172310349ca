"""What a search of vectors costs by the number of vectors and the kind of index."""
