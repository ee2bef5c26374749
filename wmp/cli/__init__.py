"""The programs ``wmp`` and ``wmp-device`` (extra ``cli``)."""
