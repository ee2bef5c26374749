"""Other systems with the same work: ``python -m benchmarks --only peers``.

A file a peer. Each is opened as a context manager, starts what it needs on free ports of
loopback and ends it; what is not installed is skipped, with a line that says how to get it.
"""
