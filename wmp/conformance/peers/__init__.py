"""The peers that the kit plays: managers, workers and neighbors of a device."""
