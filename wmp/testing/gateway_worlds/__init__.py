"""Simulated networks with peers of other protocols."""
