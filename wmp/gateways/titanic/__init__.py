"""Titanic: stored requests to a Majordomo broker (``specs/majordomo.md``)."""
