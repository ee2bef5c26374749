"""ZeroMQ sockets: connections, endpoints, options, security."""
