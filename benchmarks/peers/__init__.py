"""Other systems with the same work: ``python -m benchmarks --only peers``.

There is a file for each peer. A peer is opened as a context manager, starts its programs on free
ports of loopback, and ends them. A peer that is not installed is skipped, with a line that says how
to install it.
"""
