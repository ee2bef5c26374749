"""Both ends of the protocol: what manager, worker and device share."""
