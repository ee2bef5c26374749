"""The parts of simulated networks: virtual time, links, faults, fleets, traces."""
