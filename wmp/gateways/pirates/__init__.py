"""The Lazy, Simple and Paranoid Pirate patterns (``specs/pirates.md``)."""
