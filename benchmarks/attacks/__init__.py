"""Attacks on a node with work, compared with an attacker that only uses as much CPU time.

``python -m benchmarks.attacks`` runs every drill of :mod:`benchmarks.attacks.drills`.
"""
