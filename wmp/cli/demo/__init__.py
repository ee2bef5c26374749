"""``wmp demo``: managers, devices and workers as processes, with real input."""
