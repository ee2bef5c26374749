"""The driver: one loop of a node that does all its I/O and calls its machine."""
