"""One manager a process and connection, for tasks that come one after the other (ROWS-4.7)."""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from wmp.blocking import Manager
from wmp.duration import Duration
from wmp.errors import ClosedError
from wmp.rows.payloads import CODEC
from wmp.rows.row_terms import RowTerms

_managers: Final[dict[tuple[Any, ...], Manager]] = {}
_lock: Final = threading.Lock()


def process_manager(terms: RowTerms) -> Manager:
    """Return the manager of this process for a connection; start it if there is none that runs.

    Raises:
        ConfigError: An endpoint is wrong.
        StoreError: The store cannot be opened.
    """
    # After a fork the manager runs in the parent process only.
    key = os.getpid(), terms.through, terms.security, terms.store
    with _lock:
        manager = _managers.get(key)
        if manager is not None and _runs(manager):
            return manager
        store = terms.store() if callable(terms.store) else terms.store
        manager = Manager(
            connect=terms.through,
            codec=CODEC,
            label=f"rows {os.uname().nodename} {os.getpid()}",
            security=terms.security,
            store=store,
        )
        manager.__enter__()
        _managers[key] = manager
        return manager


def close_managers(timeout: Duration = 0.0) -> None:
    """Close the managers of this process; those that are needed later are started again."""
    with _lock:
        mine = [key for key in _managers if key[0] == os.getpid()]
        closing = [_managers.pop(key) for key in mine]
    for manager in closing:
        manager.close(timeout)


def _runs(manager: Manager) -> bool:
    try:
        manager.wait_for_workers(0)
    except ClosedError:
        return False
    return True
