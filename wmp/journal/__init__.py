"""Events and actions of a node, as lines that can be read without the node.

:mod:`~wmp.journal.schema` says what the lines are, :mod:`~wmp.journal.formatter` makes them of
events and actions, without I/O. Files are written by :mod:`wmp.runtime.journal` and read by
:mod:`~wmp.journal.reader`. ``specs/journal.md`` says what is promised.
"""
