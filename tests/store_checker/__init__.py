"""A checker of stores: programs that are killed and stopped, and logs that are not the library's.

``python -m tests.store_checker --acks 2000 --faults 40`` runs :mod:`tests.store_checker.__main__`.
"""
