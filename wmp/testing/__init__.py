"""For tests of this library, of its users and of other implementations.

Needs Hypothesis (the extra ``conformance``); nothing of the library imports it.
"""
