"""Power cuts of a store on SQLite: a trace of its system calls, cut off everywhere.

``python -m wmp.testing.power`` runs the program of :mod:`wmp.testing.power.__main__`.
"""
