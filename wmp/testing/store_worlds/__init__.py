"""Simulated networks of managers and dispatchers with a store in memory."""
