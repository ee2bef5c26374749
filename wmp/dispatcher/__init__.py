"""The dispatcher: many masters on one store, with an HTTP API (specs/dispatcher.md)."""
