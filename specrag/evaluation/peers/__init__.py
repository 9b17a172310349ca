"""Other engines as arms of a benchmark, each in a process and an environment of its own."""
