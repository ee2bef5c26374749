"""The store in a database of PostgreSQL, for the processes of many hosts."""
