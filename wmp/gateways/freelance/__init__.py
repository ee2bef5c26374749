"""Freelance: clients of several servers without a broker (``specs/freelance.md``)."""
