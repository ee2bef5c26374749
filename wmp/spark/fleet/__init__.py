"""Fleets: workers inside of Spark executors (``specs/fleet.md``)."""
