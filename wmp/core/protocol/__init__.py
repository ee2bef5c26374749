"""The parts of the protocol that manager, worker and device share."""
