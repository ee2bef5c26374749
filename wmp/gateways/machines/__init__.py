"""State machines of other protocols, without I/O, clock or randomness.

Each machine has ``handle(event, now)`` and ``deadline()``, as the machines of :mod:`wmp.core`.
Events and actions are those of :mod:`wmp.foreign`.
"""
