"""The only place that does I/O: sockets, one driver, executors, security."""
