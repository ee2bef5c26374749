"""Events and actions of a node as lines of text.

:mod:`~wmp.journal.schema` defines the lines, and :mod:`~wmp.journal.formatter` makes them from
events and actions, without I/O. :mod:`wmp.runtime.common.recorder` writes files, and
:mod:`~wmp.journal.reader` reads them. ``specs/journal.md`` has the promises.
"""
