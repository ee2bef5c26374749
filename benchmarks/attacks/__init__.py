"""Attacks on a node at work, compared with processes that use as much CPU time and attack no node.

``python -m benchmarks.attacks`` runs every drill of :mod:`benchmarks.attacks.drills`.
"""
