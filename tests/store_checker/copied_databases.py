"""Copies of a database of PostgreSQL that are put in the place of the database."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.store_checker.ledger import MANY, Broken, Ledger, some_sizes
from tests.unit.store.stores import Client
from wmp.errors import StoreError

__all__ = ["CopiedDatabases"]


class CopiedDatabases:
    """One database for each try: jobs, a copy, more jobs, and the copy in its place."""

    def __init__(self, server: Any, folder: Path) -> None:
        self._server, self._folder = server, folder

    def play(self, number: int, draw: random.Random) -> str:
        """Make one try; return whether a process used the database all the time.

        Raises:
            Broken: The store did not keep its word.
        """
        from wmp.store.postgres.postgres_store import PostgresStore

        name, copy = f"d{number}", f"c{number}"
        url = self._server.url.replace("/postgres?", f"/{name}?")
        self._run(f"CREATE DATABASE {name}")
        ledger = Ledger(self._folder / f"{number}.log")
        store = PostgresStore(url, grace=0.0)
        generation = store.generation
        self._write(Client(store, b"a"), ledger, "a", draw)
        backup = _content(store)
        self._run(f"CREATE DATABASE {copy} TEMPLATE {name}", ends=name)
        # The connection was cut: the store makes another one.
        living = Client(store, b"b")
        self._write(living, ledger, "b", draw)
        highest = max(job[0] for job in _content(store).values())
        lives = draw.random() < 0.5
        if not lives:
            store.close()
        self._run(f"DROP DATABASE {name} WITH (FORCE)", ends=name)
        self._run(f"CREATE DATABASE {name} TEMPLATE {copy}", ends=copy)
        if lives:
            self._add_nothing(living)
            store.close()
        self._use(PostgresStore(url, grace=0.0), backup, generation, highest)
        self._run(f"DROP DATABASE {name}", ends=name)
        self._run(f"DROP DATABASE {copy}", ends=copy)
        ledger.close()
        return "under a living process" if lives else "without a process"

    def _write(self, client: Client, ledger: Ledger, name: str, draw: random.Random) -> None:
        for batch in range(draw.choice([1, 5, 10])):
            ledger.add(client, f"{name}.{batch}", some_sizes(draw, 3000))
            if draw.random() < 0.4:
                ledger.end_some(client, 4)

    def _add_nothing(self, living: Client) -> None:
        """A process from before the copy must notice; nothing is acknowledged."""
        for _ in range(2):
            try:
                living.add(b"new ", keys=["new"])
            except StoreError:
                living.number -= 1
            else:
                raise Broken("lost: a process got an acknowledgement after a copy was put in place")

    def _use(self, store: Any, backup: dict[Any, Any], generation: int, highest: int) -> None:
        try:
            if _content(store) != backup:
                raise Broken("wrong: after a restoration the store differs from its copy")
            if store.generation <= generation:
                raise Broken(f"wrong: the generation is {store.generation}, before {generation}")
            client = Client(store, b"after")
            (id,) = client.add(b"after ", keys=["after"])
            if id <= highest:
                raise Broken(f"wrong: job {id} has a number that may have been given before")
            client.sweep(1000)
            while len(reserved := client.reserve(100).ids):
                if id in reserved:
                    return
            raise Broken("stuck: a new job is not reserved")
        finally:
            store.close()

    def _run(self, statement: str, *, ends: str = "") -> None:
        """Run a statement; end the sessions in a database before."""
        import psycopg

        with psycopg.connect(self._server.url, autocommit=True) as connection:
            if ends:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE datname = %s",
                    (ends,),
                )
            connection.execute(statement.encode())


def _content(store: Any) -> dict[str | None, tuple[Any, ...]]:
    jobs = store.list(limit=MANY, payloads=True)
    return {job.key: (job.id, job.state, job.payload, job.result) for job in jobs}
