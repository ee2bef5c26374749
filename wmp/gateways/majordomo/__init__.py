"""Majordomo 0.1: broker, clients and worker (``specs/majordomo.md``)."""
