"""Two managers as a pair: one grants jobs, and the other is on standby until the first one ends.

In an installation each manager is a program of its own, on a host of its own. The store is one that
both hosts reach (PostgreSQL), or there is none, and clients send their requests again.
"""

import secrets
import tempfile
from pathlib import Path

import wmp
from wmp.gateways import BinaryStar

MANAGERS = ("tcp://127.0.0.1:7511", "tcp://127.0.0.1:7512")
STATES = ("tcp://127.0.0.1:7513", "tcp://127.0.0.1:7514")
# In an installation both programs read one file: key="star.key".
KEY = secrets.token_bytes(32)


def make_manager(role: str, store: Path) -> wmp.Manager:
    """Make one manager of the pair."""
    own = 0 if role == "primary" else 1
    star = BinaryStar(role, local=STATES[own], remote=STATES[1 - own], key=KEY, heartbeat=0.1)
    identity = ("orders-a", "orders-b")[own]
    return wmp.Manager(MANAGERS[own], identity=identity, star=star, store=store)


with tempfile.TemporaryDirectory() as folder:
    store = Path(folder) / "orders.db"
    orders_a, orders_b = make_manager("primary", store), make_manager("backup", store)
    with orders_b, orders_a:
        # The PING of this worker is the vote by which orders-b takes over.
        with wmp.Worker(*MANAGERS, handlers=bytes.upper, ping=0.2):
            orders_a.wait_active(timeout=30)
            print("orders-a serves:", orders_a.submit(b"one").result(timeout=30).decode())
            try:
                orders_b.submit(b"two")
            except wmp.OnStandby as error:
                print(f"orders-b refuses: {error}")
            # No worker has this role yet. The job outlives the manager that took it.
            orders_a.submit(b"three", role="late", key="three")
            orders_a.close(0)
            orders_b.wait_active(timeout=30)
            print("orders-b serves:", orders_b.submit(b"four").result(timeout=30).decode())
        with wmp.Worker(*MANAGERS, handlers={"late": bytes.upper}):
            joined = orders_b.submit(b"three", role="late", key="three", unique="kept")
            print("the job of orders-a:", joined.result(timeout=30).decode())
