"""The doors of a queue: for clients and workers of the Pirate patterns and of ping-pong."""
