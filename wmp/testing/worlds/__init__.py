"""Seeded worlds of managers, workers and devices, with the checks of each run."""
