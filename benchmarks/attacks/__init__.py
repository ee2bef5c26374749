"""Attacks on a node at work, compared with a process that uses as much CPU time and attacks no
node.

``python -m benchmarks.attacks`` runs every drill of :mod:`benchmarks.attacks.drills`.
"""
