"""The invariants of the protocol, checked on what nodes report.

The simulator checks them while it runs, and the pipeline on the lines of journals.
"""
