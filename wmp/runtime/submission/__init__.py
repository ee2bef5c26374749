"""Submitted jobs: their submitters, their number, and the delivery of their results."""
