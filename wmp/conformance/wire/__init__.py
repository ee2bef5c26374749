"""The ways to a testee: virtual time in this process, or sockets to a process."""
