"""Tests of users' handlers: :func:`wmp.testing.simulate` and its world."""
