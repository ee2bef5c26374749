"""Round robin on the LMQ layer: server, worker and client (``specs/round-robin.md``)."""
