"""The worker of the ping-pong protocol (``specs/ping-pong.md``)."""
