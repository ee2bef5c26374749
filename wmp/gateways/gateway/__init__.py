"""The gateway: doors for other protocols around one manager and groups of workers."""
