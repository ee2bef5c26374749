"""Attacks on a node at work, beside an attacker that only uses as much CPU time.

``python -m benchmarks.attacks`` runs every drill of :mod:`benchmarks.attacks.drills`.
"""
