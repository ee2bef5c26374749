"""Submitted jobs: who waits for them, how many there are, and what becomes of their results."""
