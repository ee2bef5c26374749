"""For tests of this library, of its users and of other implementations.

``python -m wmp.testing`` plays seeded worlds (:mod:`wmp.testing.world`). Only
:mod:`wmp.testing.strategies` needs Hypothesis (the extra ``conformance``); nothing of the
library imports this package.
"""
