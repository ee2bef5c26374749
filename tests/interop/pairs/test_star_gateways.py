"""Two gateways as a Binary Star: one serves the clients, the other takes over.

``WMP_SEED`` repeats an order of kills; the exact moments differ from run to run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal

import pytest

import wmp
from tests.interop.pairs.pair_clients import PairClients
from tests.interop.programs.forks import wmp as run_wmp
from tests.interop.programs.programs import WMP, Program
from tests.waiting import WAIT, wait_until
from wmp.errors import ConfigError
from wmp.gateways import BinaryStar, ClientDoor, Gateway, RoundRobinDoor, StarClient, WorkerDoor
from wmp.gateways.binary_star.election import StarState

pytestmark = pytest.mark.interop

SEED = int(os.environ.get("WMP_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

DEFINITION = """
[gateway]
bind = "ipc://wmp-{own}"
[[gateway.clients]]
bind = "ipc://door-{own}"
[gateway.star]
role = "{role}"
local = "ipc://state-{own}"
remote = "ipc://state-{other}"
heartbeat = 1.0
"""
DOORS = ("ipc://door-a", "ipc://door-b")
ROLES = {"a": "primary", "b": "backup"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for own, other in (("a", "b"), ("b", "a")):
        text = DEFINITION.format(own=own, other=other, role=ROLES[own])
        (tmp_path / f"{own}.toml").write_text(text, encoding="utf-8")
    return tmp_path


def knows_standby(worker):
    """Return whether a worker knows a manager on standby."""
    return any(manager.standby for manager in list(worker._inner._machine._links.managers.values()))


def test_a_gateway_takes_over_and_its_star_ends_with_it(tmp_path):
    at = f"ipc://{tmp_path}"

    def make(role, own, other):
        star = BinaryStar(role, local=f"{at}/s{own}", remote=f"{at}/s{other}", heartbeat=0.5)
        gateway = Gateway(ClientDoor(f"{at}/door{own}"), bind=f"{at}/wmp{own}", star=star)
        return star._inner, gateway

    first, primary = make("primary", "a", "b")
    second, backup = make("backup", "b", "a")
    with contextlib.ExitStack() as stack:
        stack.enter_context(primary)
        stack.enter_context(backup)
        both = (*primary.endpoints, *backup.endpoints)
        idle = wmp.Worker(*both, handlers=bytes.upper)
        stack.enter_context(idle)
        wait_until(lambda: second.state is StarState.PASSIVE)
        doors = f"{at}/doora", f"{at}/doorb"
        asker = stack.enter_context(StarClient(*doors, timeout=0.5, settle=0.2))
        assert asker.request(b"one") == b"ONE"
        # The passive manager is on standby, so that the active one gets held GIVEs (WMP-17.3).
        wait_until(lambda: knows_standby(idle))
        turned = stack.enter_context(StarClient(*doors[::-1], timeout=0.1, settle=0.1))
        assert turned.request(b"two") == b"TWO"
        assert backup.statistics().doors[0].requests == 0  # they were dropped, and not queued

        primary.close()
        assert first.state is StarState.HALTED
        assert asker.request(b"three") == b"THREE"
        assert second.active


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.deep)])
def test_an_active_gateway_that_is_killed_is_replaced_each_time(folder, rounds):
    print(f"WMP_SEED={SEED}")
    draw = random.Random(SEED)
    with contextlib.ExitStack() as stack:

        def start(name):
            process = stack.enter_context(run_wmp("gateway", "--config", f"{name}.toml"))
            process.wait_for_line("WMP workers connect to")
            return process

        gateways = {name: start(name) for name in ROLES}
        idle = wmp.Worker("ipc://wmp-a", "ipc://wmp-b", handlers=bytes.upper, slots=4)
        stack.enter_context(idle)

        clients = stack.enter_context(PairClients(DOORS, tries=60))
        clients.wait_for_replies()
        active, longest = "a", []
        for _ in range(rounds):
            clients.waits.clear()
            gateways[active].process.kill()
            gateways[active].process.wait(WAIT)
            clients.wait_for_replies()
            longest.append(max(clients.waits))
            other = "b" if active == "a" else "a"
            if draw.random() < 0.5:
                wait_until(lambda: clients.replies % 7 == 0)  # another moment
            gateways[active] = start(active)
            gateways[active].wait_for_line("passive")
            wait_until(lambda: knows_standby(idle), "the worker knows the standby")
            clients.wait_for_replies()
            active = other
        print(f"takeovers: {sorted(round(seconds, 2) for seconds in longest)} s")
        clients.end()
        assert clients.wrong == []


@pytest.mark.rule("STAR-2.4")
def test_exit_codes_of_wrong_roles_and_of_two_active_gateways(folder):
    (folder / "c.toml").write_text(
        DEFINITION.format(own="b", other="a", role="primary"), encoding="utf-8"
    )
    with run_wmp("gateway", "--config", "a.toml") as first:
        first.wait_for_line("WMP workers connect to")
        with run_wmp("gateway", "--config", "c.toml") as two:
            wait_until(lambda: (first.process.poll(), two.process.poll()) != (None, None))
            ended = first if first.process.poll() is not None else two
            assert ended.process.poll() == 2
            ended.wait_for_line("both nodes of this Binary Star have the role primary")


@pytest.mark.rule("STAR-2.4")
def test_an_active_gateway_that_was_stopped_for_too_long_meets_another(folder):
    with Program(*WMP, "gateway", "--config", "a.toml") as first:
        first.wait_for_line("WMP workers connect to")
        with Program(*WMP, "gateway", "--config", "b.toml") as two:
            two.wait_for_line("passive")
            worker = wmp.Worker("ipc://wmp-a", "ipc://wmp-b", handlers=bytes.upper)
            client = StarClient(*DOORS, timeout=1.0, settle=0.5)
            with worker, client:
                assert client.request(b"one") == b"ONE"
                first.process.send_signal(signal.SIGSTOP)
                assert client.request(b"two") == b"TWO"  # the other one has taken over
                first.process.send_signal(signal.SIGCONT)
                wait_until(lambda: 3 in (first.process.poll(), two.process.poll()))
                ended = first if first.process.poll() is not None else two
                ended.wait_for_line("both nodes of this Binary Star are active")
                assert client.request(b"three") == b"THREE"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--star", "primary", "--local", "tcp://127.0.0.1:1"), "add --local and --remote"),
        (("--local", "tcp://127.0.0.1:1"), "belong to --star"),
        (
            ("--star", "backup", "--local", "tcp://0.0.0.0:1", "--remote", "tcp://127.0.0.1:1"),
            "add --open",
        ),
    ],
)
def test_wrong_flags_are_refused(flags, text):
    doors = ("--simple-pirate", "tcp://127.0.0.1:9", "-", "--bind", "tcp://127.0.0.1:8")
    with run_wmp("gateway", *doors, *flags) as gateway:
        assert gateway.ends() == 2
        assert text in gateway.stderr


def test_a_star_needs_a_door_for_clients_alone():
    star = BinaryStar("primary", local="ipc://a", remote="ipc://b")
    with pytest.raises(ConfigError, match="no door for clients alone"):
        Gateway(WorkerDoor("ipc://d", protocol="ping-pong"), connect="ipc://m", star=star)
    with pytest.raises(ConfigError, match="give the star a gateway of its own"):
        Gateway(ClientDoor("ipc://c"), RoundRobinDoor("ipc://d"), star=star)
