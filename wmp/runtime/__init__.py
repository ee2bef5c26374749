"""I/O: sockets, one driver, executors, security. No other package does I/O in a node."""
