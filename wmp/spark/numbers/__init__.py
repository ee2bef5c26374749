"""Load, latency and throughput of journals, without a check of rules."""
