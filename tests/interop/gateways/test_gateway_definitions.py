"""Each definition under ``gateways/`` serves its peers; flags, control and wrong definitions."""

from __future__ import annotations

import configparser
import contextlib
import grp
import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest

import wmp
from tests.interop.gateways.foreign_workers import WORKERS
from tests.interop.gateways.majordomo_peers import GuideWorker, ask
from tests.interop.programs.forks import wmp as run_wmp
from tests.interop.programs.programs import ROOT
from tests.waiting import WAIT, wait_until
from wmp.errors import ConfigError, TransportError
from wmp.gateways import (
    ClientDoor,
    LazyClient,
    MajordomoDoor,
    MajordomoService,
    RoundRobinClient,
    RoundRobinDoor,
    RoundRobinWorker,
    StarClient,
    WorkerDoor,
)
from wmp.gateways.definitions import load_gateway
from wmp.gateways.gateway import control
from wmp_programs import wmp as main

pytestmark = pytest.mark.interop

FOLDER = ROOT / "gateways"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
OTHER_CLIENTS = {"majordomo", "pair", "round-robin"}
"""Definitions whose clients are no Pirates, or that need a second gateway."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    key = tmp_path / "star.key"
    key.write_text("a secret that both gateways of a pair share")
    key.chmod(0o600)
    return tmp_path


def moved(name: str, folder: Path, file: str = "gateway.toml") -> Path:
    """Copy a definition, and replace its addresses by ipc names."""
    text = (FOLDER / name / file).read_text(encoding="utf-8")
    path = folder / file
    path.write_text(
        re.sub(r"tcp://127\.0\.0\.1:(55\d\d|6714)", r"ipc://\1", text), encoding="utf-8"
    )
    return path


@pytest.mark.deep
def test_a_gateway_with_titanic_keeps_requests(folder):
    flags = ("--majordomo", "ipc://m", "--titanic", "t.db")
    with run_wmp("gateway", *flags) as gateway:
        gateway.wait_for_line("titanic keeps requests in t.db")
        status, id = ask("ipc://m", b"titanic.request", b"shout", b"hello")
        assert (status, len(id)) == (b"200", 32)
        gateway.signal(signal.SIGTERM)
        assert gateway.ends() == 0
    with run_wmp("gateway", *flags), GuideWorker("ipc://m", b"shout", 0.2):
        wait_until(lambda: ask("ipc://m", b"titanic.reply", id) == [b"200", b"HELLO"])
        assert ask("ipc://m", b"titanic.close", id) == [b"200"]


@pytest.mark.parametrize("sort", ["flags", "file"])
def test_the_store_of_titanic_gets_its_settings(folder, sort):
    group = grp.getgrgid(os.getgid()).gr_name
    if sort == "flags":
        settings = ("--titanic", "t.db", "--reserve", "2097152", "--group", group)
        flags = ("--majordomo", "ipc://m", *settings)
    else:
        (folder / "gateway.toml").write_text(
            f'[[gateway.majordomo]]\nbind = "ipc://m"\n[gateway.titanic]\nstore = "t.db"\n'
            f'reserve = 2097152\ngroup = "{group}"\n',
            encoding="utf-8",
        )
        flags = ("--config", "gateway.toml")
    with run_wmp("gateway", *flags) as gateway:
        gateway.wait_for_line("titanic keeps requests in")
        assert ask("ipc://m", b"titanic.request", b"shout", b"hello")[0] == b"200"
        assert 2 << 20 <= (folder / "t.db-reserve").stat().st_size < 16 << 20
        assert (folder / "t.db").stat().st_mode & 0o777 == 0o660
        gateway.signal(signal.SIGTERM)
        assert gateway.ends() == 0


def test_a_majordomo_broker_serves_its_clients_and_workers(folder):
    path = moved("majordomo", folder)
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(run_wmp("gateway", "--config", str(path)))
        gateway.wait_for_line("clients and workers of majordomo connect to")
        stack.enter_context(GuideWorker("ipc://5555", b"shout", 0.2))
        assert ask("ipc://5555", b"shout", b"hello") == [b"HELLO"]
        assert ask("ipc://5555", b"mmi.service", b"shout") == [b"200"]
        gateway.signal(signal.SIGTERM)

        assert gateway.ends() == 0


@pytest.mark.parametrize("name", sorted({*NAMES} - OTHER_CLIENTS))
def test_it_serves_its_clients_and_workers(name, folder):
    path = moved(name, folder)
    worker = WORKERS[load_gateway(path).doors[1].protocol]
    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(wmp.Manager("ipc://5570")) if name == "bridge" else None
        gateway = stack.enter_context(run_wmp("gateway", "--config", str(path)))
        gateway.wait_for_line("workers of ")
        stack.enter_context(worker("ipc://5556"))
        client = stack.enter_context(LazyClient("ipc://5555", timeout=WAIT))
        assert client.request(b"hello") == b"HELLO"
        if manager is not None:
            assert manager.submit(b"job", timeout=WAIT).result() == b"JOB"
        gateway.signal(signal.SIGTERM)

        assert gateway.ends() == 0
        assert "Traceback" not in gateway.stderr


def test_two_gateways_are_a_pair(folder):
    primary, backup = (moved("pair", folder, file) for file in ("gateway.toml", "backup.toml"))
    with (
        run_wmp("gateway", "--config", str(primary)) as first,
        run_wmp("gateway", "--config", str(backup)) as second,
        wmp.Worker("ipc://5570", "ipc://5571", handlers=bytes.upper),
        StarClient("ipc://5501", "ipc://5511") as client,
    ):
        second.wait_for_line("passive (was backup)")
        assert client.request(b"one") == b"ONE"
        first.process.kill()
        assert client.request(b"two") == b"TWO"
        second.signal(signal.SIGTERM)
        assert second.ends() == 0


@pytest.mark.parametrize("flags", [(), ("--round-robin", "ipc://6714", "--control", "c")])
def test_round_robin_is_served_by_definition_and_by_flags(flags, folder):
    flags = flags or ("--config", str(moved("round-robin", folder)))
    with run_wmp("gateway", *flags) as gateway:
        gateway.wait_for_line("clients and workers of round-robin connect to ipc://6714")
        with (
            RoundRobinWorker("ipc://6714", {0x20: lambda frames: frames[1].upper()}),
            RoundRobinClient("ipc://6714", timeout=WAIT) as client,
        ):
            assert client.call(0x20, "hello") == [b"HELLO"]
            if "--control" in flags:
                (row,) = control.ask("c", {"do": "workers"})["workers"]
                assert bytes.fromhex(row["id"]).startswith(b"ipc://6714:")
                assert (row["group"], row["state"]) == ("round-robin", "idle")
                with pytest.raises(TransportError, match="know no EXIT"):
                    control.ask("c", {"do": "kill", "id": row["id"]})
        gateway.signal(signal.SIGTERM)
        assert gateway.ends() == 0
        assert "Traceback" not in gateway.stderr


def test_flags_do_the_same_and_kill_ends_a_worker(folder):
    addresses = ("ipc://front", "ipc://back")
    flags = ("--ping-pong", *addresses, "--control", "c", "--journal", "journal")
    with (
        run_wmp("gateway", *flags) as gateway,
        WORKERS["ping-pong"]("ipc://back") as worker,
        LazyClient("ipc://front", timeout=WAIT) as client,
    ):
        gateway.wait_for_line("workers of ping-pong connect to ipc://back")
        assert client.request(b"hello") == b"HELLO"
        with run_wmp("gateway", "workers", "--control", "c") as listing:
            assert listing.ends() == 0
            id, group, state = listing.stdout.decode().split()
        assert (group, state) == ("ping-pong", "idle")
        with run_wmp("gateway", "kill", id, "--control", "c") as killing:
            assert killing.ends() == 0
        wait_until(lambda: worker._ended.is_set())
        with run_wmp("gateway", "kill", id, "--control", "c") as killing:
            assert killing.ends() == 1
            assert "there is no worker" in killing.stderr
        gateway.signal(signal.SIGTERM)
        assert gateway.ends() == 0
    assert len(list(Path("journal").iterdir())) == 2
    assert not Path("c").exists()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((), "the gateway has no door; expected --ping-pong"),
        (("--majordomo", "tcp://0.0.0.0:9"), "add --open to serve"),
        (("--simple-pirate", "ipc://a", "ipc://b", "--titanic", "t"), "add --majordomo"),
        (("--majordomo", "ipc://a", "--reserve", "0"), "are about the store of --titanic"),
        (("--config", "x.toml", "--open"), "--config excludes every other option"),
        (("--config", "x.toml", "--reserve", "0"), "--config excludes every other option"),
        (("--simple-pirate", "tcp://0.0.0.0:9", "-", "--bind", "ipc://w"), "add --open to serve"),
        (("--simple-pirate", "ipc://a", "-"), "no worker could do the requests"),
        (("kill", "zz", "--control", "c"), "expected hex digits"),
        (("kill", "00", "--control", "c"), "cannot reach a gateway at c"),
        (("--config", "none.toml"), "cannot read none.toml"),
    ],
)
def test_wrong_flags_are_refused(flags, text, folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["wmp", "gateway", *flags])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_check_prints_the_doors_and_opens_nothing(name, folder, monkeypatch, capsys):
    shutil.copy(FOLDER / name / "gateway.toml", folder)
    monkeypatch.setattr("sys.argv", ["wmp", "gateway", "check", "gateway.toml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    output = capsys.readouterr().out
    for door in load_gateway("gateway.toml").doors:
        assert door.protocol in output
        assert ", ".join(door.bind) in output
    assert {path.name for path in folder.iterdir()} == {"gateway.toml", "star.key"}


@pytest.mark.parametrize("name", NAMES)
def test_its_folder_is_complete(name):
    folder = FOLDER / name
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string((folder / f"wmp-{name}.service").read_text(encoding="utf-8"))
    program, command, flag, path = shlex.split(unit["Service"]["ExecStart"])

    assert (Path(program).name, command, flag) == ("wmp", "gateway", "--config")
    assert path == f"/etc/wmp/{name}/gateway.toml"
    assert (folder / "README.md").read_text(encoding="utf-8").startswith(f"# {name}\n")
    assert f"]({name}/README.md)" in (FOLDER / "README.md").read_text(encoding="utf-8")


FRONT = '[[gateway.clients]]\nbind = "ipc://a"\n'
MDP = '[[gateway.majordomo]]\nbind = "ipc://m"\n'
ROUND = '[[gateway.round_robin]]\nbind = "ipc://r"\n'
BACK = '[[gateway.workers]]\nbind = "ipc://b"\nprotocol = "ping-pong"\n'


def test_a_definition_is_read_into_its_doors(folder):
    Path("d.toml").write_text(
        '[gateway]\nlabel = "us"\nbind = "ipc://w"\ncontrol = "c"\n'
        f"{FRONT}max_worker_losses = 0\nneeds = {{ gpu = 1 }}\n{BACK}"
        'roles = ["a", "b"]\nheartbeat = 0.5\n'
        f'{MDP}[[gateway.majordomo.services]]\nname = "pay*"\nmax_worker_losses = 0\n'
        "[gateway.transport]\nlinger = 1\n"
    )
    definition = load_gateway("d.toml")

    assert definition.doors == (
        ClientDoor("ipc://a", max_worker_losses=0, needs={"gpu": 1}),
        WorkerDoor("ipc://b", protocol="ping-pong", roles=("a", "b"), heartbeat=0.5),
        MajordomoDoor("ipc://m", services=[MajordomoService("pay*", max_worker_losses=0)]),
    )
    assert (definition.bind, definition.label, definition.control) == (
        ("ipc://w",),
        "us",
        Path("c"),
    )
    assert definition.transport == wmp.Transport(linger=1.0)


def test_a_door_of_round_robin_is_read_with_its_commands(folder):
    Path("d.toml").write_text(
        '[[gateway.round_robin]]\nbind = "ipc://a"\nname = "here"\nmax_queue = 5\n'
        'commands = { "20" = "shout", "0A0b" = "stream" }\n'
    )
    assert load_gateway("d.toml").doors == (
        RoundRobinDoor(
            "ipc://a", name="here", max_queue=5, commands={b" ": "shout", b"\n\x0b": "stream"}
        ),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "there is no [gateway] table; expected one"),
        ("[gatway]", "gatway is not a known key; did you mean gateway"),
        ("[gateway]\nclient = 1", "gateway.client is not a known key; did you mean clients"),
        ("[gateway]\nclients = 1", "gateway.clients is 1; expected tables [[gateway.clients]]"),
        ("[[gateway.clients]]", "gateway.clients[0].bind is missing; expected an address"),
        (f"{FRONT}limt = 1", "gateway.clients[0].limt is not a known key; did you mean limit"),
        (f"{FRONT}limit = 0", "gateway.clients[0].limit is 0; expected a whole number"),
        (f"{FRONT}{FRONT}open = 1", "gateway.clients[1].open is 1; expected true or false"),
        (f'{FRONT}[[gateway.workers]]\nbind = "ipc://b"', "gateway.workers[0].protocol is missing"),
        (f"{BACK}heartbeat = 60", "gateway.workers[0].heartbeat is 60; expected seconds from 0.01"),
        (f"{ROUND}commands = 1", "gateway.round_robin[0].commands is 1; expected roles by command"),
        (f'{ROUND}commands = {{ "zz" = "a" }}', "has the commands zz; expected bytes in hexadec"),
        (f'{ROUND}commands = {{ "20" = "" }}', "gateway.round_robin[0].a role is ''; expected"),
        (f'{ROUND}protocol = "x"', "gateway.round_robin[0].protocol is not a known key"),
        (f"{ROUND}open = 1", "gateway.round_robin[0].open is 1; expected true or false"),
        (f"{ROUND}max_slots = 0", "gateway.round_robin[0].max_slots is 0; expected a whole number"),
        ('[[gateway.clients]]\nbind = "tcp://0.0.0.0:9"', "write open = true for a door"),
        (f'{MDP}busy = "no"', "gateway.majordomo[0].busy is 'no'; expected one of honest, strict"),
        (
            '[gateway]\ntitanic = "t"',
            "gateway.titanic is 't'; expected a Majordomo broker for both",
        ),
        (f"{MDP}[gateway.titanic]", "gateway.titanic.store is missing; expected the name of a"),
        (
            f'{MDP}[gateway.titanic]\nstore = "t"\nreserve = -1',
            "gateway.titanic.reserve is -1; expected a whole number of at least 0",
        ),
        (
            f'{MDP}[gateway.titanic]\nstore = "t"\nsize = 1',
            "gateway.titanic.size is not a known key",
        ),
        (
            f'{MDP}[gateway.titanic]\nstore = "t"\nreply_ttl = 0',
            "gateway.titanic.reply_ttl is 0.0; expected a number of seconds, more than 0",
        ),
        (f"{MDP}protocol = 1", "gateway.majordomo[0].protocol is not a known key"),
        (
            f"{MDP}[[gateway.majordomo.services]]",
            "gateway.majordomo[0].services[0].name is missing",
        ),
        (
            f'{MDP}[[gateway.majordomo.services]]\nname = "mmi.x"',
            "gateway.majordomo[0].services[0]: a service is 'mmi.x'; the broker itself does",
        ),
        (
            f"{FRONT}expiry = 1",
            "clients[0].expiry is not a known key; it was renamed; write timeout",
        ),
        (
            f"{ROUND}expiry = 1",
            "robin[0].expiry is not a known key; it was renamed; write timeout",
        ),
        (
            f'{MDP}[[gateway.majordomo.services]]\nname = "x"\nexpiry = 1',
            "services[0].expiry is not a known key; it was renamed; write timeout",
        ),
        (
            f"{FRONT}retries = 0",
            "retries is not a known key; it was renamed; write max_worker_losses",
        ),
        (
            f'{MDP}[[gateway.majordomo.services]]\nname = "a"\nretries = 0',
            "services[0].retries is not a known key; it was renamed; write max_worker_losses",
        ),
        (
            "[gateway.star]\nexpire = 6",
            "star.expire is not a known key; it was renamed; write max_silence",
        ),
        ("[gateway]\ndrain_timeout = 'x'", "gateway.drain_timeout is 'x'; expected a number"),
        ("[gateway.security]", "gateway.security.secret is missing; expected the .key_secret file"),
    ],
)
def test_an_error_in_a_definition_names_file_and_key(folder, text, expected):
    Path("d.toml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_gateway("d.toml")

    assert str(raised.value).startswith("d.toml: ")
    assert expected in str(raised.value)
