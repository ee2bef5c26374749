"""The life of a node: start, settings, signals, drain and end."""
