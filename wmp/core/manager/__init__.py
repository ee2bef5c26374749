"""The manager machine: holds jobs and grants them to workers."""
