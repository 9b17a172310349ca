"""A draft model beside a batch: its cache, its vocabulary, its chains and trees."""
