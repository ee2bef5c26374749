"""Stored jobs: one contract, one table of the lifecycle, and the stores themselves.

``specs/store.md`` defines what a store promises. :mod:`wmp.store.stored_job` is the table,
:mod:`wmp.store.contract` the interface, :mod:`wmp.store.sqlite` the store in one file,
:mod:`wmp.store.postgres` the store in a database.
"""
