"""Each definition under ``devices/`` starts and passes jobs on; wrong definitions are refused."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import zmq.auth

import wmp
from tests.interop.programs.forks import wmp_device
from tests.interop.programs.programs import ROOT
from tests.waiting import WAIT
from wmp.errors import ConfigError
from wmp.runtime.node.config import load_devices, meets

pytestmark = pytest.mark.interop

FOLDER = ROOT / "devices"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def shout(payload: bytes) -> bytes:
    return payload.upper()


def moved(name: str, folder: Path, manager: str) -> Path:
    """Copy a definition, and replace its addresses by unused addresses."""
    text = (FOLDER / name / "device.toml").read_text(encoding="utf-8")
    text = text.replace("tcp://127.0.0.1:5570", manager)
    # The last device of a chain binds a port that the system chooses; the addresses between the
    # devices become ipc names.
    text = text.replace("tcp://0.0.0.0:5571", "tcp://127.0.0.1:*")
    text = re.sub(r"tcp://127\.0\.0\.1:(55[78]\d)", r"ipc://\1", text)
    path = folder / "device.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gate"])
def test_it_runs_and_passes_jobs_on(name, folder):
    dialed = [] if name != "hub" else ["ipc://5572"]
    with wmp.Manager(connect=dialed) as manager:
        path = moved(name, folder, *(manager.endpoints or [""]))
        devices = load_devices(path)
        with wmp_device("run", str(path)) as device:
            for device_options in devices:
                device.wait_for_line(f"wmp-device: {device_options.label} is bound to ")
            with wmp.Worker(*devices[-1].bind, handlers=shout):
                assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"
            device.signal(signal.SIGTERM)

            assert device.ends() == 0
            assert "Traceback" not in device.stderr


def test_keys_of_managers_are_listed_apart(folder):
    make_keys(folder, "device", "workers/ada", "managers/meg")
    (folder / "device.toml").write_text(
        '[device]\nbind = "ipc://below"\nbind_managers = "ipc://above"\nlabel = "keys"\n'
        '[device.security]\nsecret = "device.key_secret"\nallowed = "workers"\n'
        'managers = "managers"\n'
    )
    ada = wmp.Security.load("workers/ada.key_secret", server="device.key")
    meg = wmp.Security.load("managers/meg.key_secret", server="device.key")
    with (
        wmp_device("run", "device.toml") as device,
        wmp.Manager(connect="ipc://above", security=ada),
    ):
        device.wait_for_line("the allow list refused the key of a peer")
        with (
            wmp.Manager(connect="ipc://above", security=meg) as manager,
            wmp.Worker("ipc://below", handlers=shout, security=ada),
        ):
            assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"


def make_keys(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        _, secret = zmq.auth.create_certificates((folder / name).parent, Path(name).name)
        Path(secret).chmod(0o600)  # a key that others can read is refused


def test_the_gate_admits_only_listed_keys(folder):
    make_keys(folder, "device", "manager", "workers/ada", "eve", "devices/unused")
    shutil.copy("device.key", "devices")
    keys = wmp.Security.load("manager.key_secret", allowed="devices")
    with wmp.Manager(security=keys) as manager:
        path = moved("gate", folder, manager.endpoints[0])
        with wmp_device("run", str(path)) as device:
            endpoint = re.search(r"bound to (\S+)", device.wait_for_line("is bound to"))[1]
            eve = wmp.Security.load("eve.key_secret", server="device.key")
            ada = wmp.Security.load("workers/ada.key_secret", server="device.key")
            with wmp.Worker(endpoint, handlers=shout, security=eve, label="eve"):
                device.wait_for_line("the allow list refused the key of a peer")
                with wmp.Worker(endpoint, handlers=shout, security=ada, label="ada"):
                    assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"
                    labels = [worker.label for worker in manager.statistics().workers]
            device.signal(signal.SIGINT)

            assert labels == ["ada"]
            assert device.ends() == 0


def test_flags_do_the_same_as_a_definition(folder):
    with wmp.Manager("ipc://one") as first, wmp.Manager("ipc://two") as two:
        argv = ("--bind", "ipc://below", "--connect", "ipc://one", "--connect", "ipc://two")
        with wmp_device(*argv, "--label", "here") as device:
            device.wait_for_line(
                "here is bound to ipc://below and connects to ipc://one, ipc://two"
            )
            with wmp.Worker("ipc://below", handlers=shout):
                for manager in (first, two):
                    assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"


def test_managers_connect_to_a_device_of_flags(folder):
    flags = ("--bind", "ipc://below", "--bind-managers", "ipc://above", "--max-managers", "1")
    with wmp_device(*flags, "--label", "here") as device:
        device.wait_for_line("here is bound to ipc://below and waits for managers at ipc://above")
        with (
            wmp.Worker("ipc://below", handlers=shout),
            wmp.Manager(connect="ipc://above") as manager,
        ):
            assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"
            with wmp.Manager(connect="ipc://above"):
                device.wait_for_line("1 manager has dialed in to this device, its limit")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--bind-managers", "tcp://127.0.0.1:5571"], "is the address for workers; give managers"),
        (["--bind-managers", "tcp://*:5572"], "every host on the network could connect"),
        (["--managers", "folder"], "--managers needs --secret FILE"),
        (
            ["--bind-managers", "ipc://a", "--secret", "me.key_secret", "--allowed", "."],
            "--allowed and --bind-managers need --managers FOLDER",
        ),
    ],
)
def test_wrong_flags_for_managers_are_named(folder, flags, expected):
    make_keys(folder, "me")
    with wmp_device(*flags) as device:
        assert device.ends() == 2
        assert expected in device.stderr


def test_devices_in_a_row(folder):
    with (
        wmp.Manager("ipc://0") as manager,
        wmp_device("--bind", "ipc://1", "--connect", "ipc://0"),
        wmp_device("--bind", "ipc://2", "--connect", "ipc://1"),
        wmp_device("--bind", "ipc://3", "--connect", "ipc://2"),
        wmp.Worker("ipc://3", handlers=shout),
    ):
        assert manager.submit(b"hello", timeout=WAIT).result() == b"HELLO"


@pytest.mark.parametrize("name", NAMES)
def test_check_prints_the_definition_and_opens_nothing(name, folder):
    shutil.copy(FOLDER / name / "device.toml", folder)
    make_keys(folder, "device", "manager", "workers/ada")
    before = sorted(os.listdir(folder))
    with wmp_device("check", "device.toml") as device:
        assert device.ends() == 0
        assert device.stderr == ""
        output = device.stdout.decode()

    for loaded in load_devices("device.toml"):
        assert loaded.label in output
        assert f"binds to     {', '.join(loaded.bind)}" in output
        assert f"connects to  {', '.join(loaded.connect) or 'none'}" in output
        assert f"managers at  {', '.join(loaded.bind_managers) or 'none'}" in output
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("name", NAMES)
def test_its_folder_is_complete(name):
    folder = FOLDER / name
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string((folder / f"wmp-{name}.service").read_text(encoding="utf-8"))
    program, command, path = shlex.split(unit["Service"]["ExecStart"])

    assert (Path(program).name, command) == ("wmp-device", "run")
    assert path == f"/etc/wmp/{name}/device.toml"
    assert unit["Service"]["Restart"] == "always"
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert (folder / "README.md").read_text(encoding="utf-8").startswith(f"# {name}\n")
    assert f"]({name}/README.md)" in (FOLDER / "README.md").read_text(encoding="utf-8")


GOOD = 'bind = "ipc://a"\nconnect = ["ipc://b", "ipc://c"]\n'


def test_a_definition_is_read_into_its_fields(folder):
    Path("d.toml").write_text(
        f'[device]\n{GOOD}identity = "me"\nlabel = "us"\nmax_hops = 3\n'
        "[device.transport]\nhigh_water_mark = 5\nlinger = 1\n"
    )
    (device,) = load_devices("d.toml")

    assert (device.bind, device.connect) == (("ipc://a",), ("ipc://b", "ipc://c"))
    assert (device.identity, device.label, device.max_hops) == ("me", "us", 3)
    assert device.transport == wmp.Transport(high_water_mark=5, linger=1.0)
    assert device.security is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "there is no [device] table; expected at least one"),
        ("device = 1", "device is 1; expected a table [device], or several [[device]]"),
        ("device = []", "device is []; expected a table [device], or several [[device]]"),
        (GOOD, "the key bind belongs to a device; write the line [device] above the key"),
        ("[devise]", "devise is not a known key; did you mean device"),
        (f"[device]\n{GOOD}conect = 1", "device.conect is not a known key; did you mean connect"),
        (f"[device]\n{GOOD}zzz = 1", "device.zzz is not a known key; expected bind, connect,"),
        ('[device]\nbind = "ipc://a"', "device.connect is missing; expected an address such as"),
        (
            '[device]\nbind = "ipc://a"\nbind_managers = "ipc://a"',
            "device.bind_managers is ipc://a, the address for workers; give managers their own",
        ),
        (f"[device]\n{GOOD}max_managers = 0", "device.max_managers is 0; expected a whole number"),
        ("[device]\nbind = 5571", "device.bind is 5571; expected an address such as"),
        ("[device]\nbind = []", "device.bind is []; expected an address such as"),
        ('[device]\nbind = ["ipc://a", 1]', "device.bind is ['ipc://a', 1]; expected an address"),
        (f"[device]\n{GOOD}max_hops = 17", "device.max_hops is 17; expected a whole number from 1"),
        (f"[device]\n{GOOD}max_hops = true", "device.max_hops is True; expected a whole number"),
        (f"[device]\n{GOOD}identity = ''", "device.identity is ''; expected text of 1 to 255"),
        (f"[device]\n{GOOD}label = 7", "device.label is 7; expected text of 1 to 1024 bytes"),
        (f"[device]\n{GOOD}security = 7", "device.security is 7; expected a table"),
        (f"[device]\n{GOOD}[device.security]", "device.security.secret is missing; expected"),
        (
            f"[device]\n{GOOD}[device.security]\nsecret = 'a'\nserver = 'b'",
            "device.security: there is no file a; make keys with: wmp keys NAME",
        ),
        (
            f"[device]\n{GOOD}[device.transport]\nlinger = 'x'",
            "device.transport.linger is 'x'; expected a number of seconds",
        ),
        (
            f"[device]\n{GOOD}[device.transport]\nhigh_water_mark = 1.5",
            "device.transport.high_water_mark is 1.5; expected a whole number",
        ),
        (
            f"[device]\n{GOOD}[device.transport]\nlingr = 1",
            "device.transport.lingr is not a known key; did you mean linger",
        ),
        (
            f"[[device]]\n{GOOD}[[device]]\nbind = 1",
            "device[1].bind is 1; expected an address such as",
        ),
        (
            f"[[device]]\n{GOOD}[[device]]\n{GOOD}",
            "device[1] binds ipc://a, an address of device[0]; give each",
        ),
        (
            '[device]\nbind = "ipc://a"\nconnect = ["ipc://b", "ipc://a"]',
            "device.connect is ipc://a, an address of this device; expected the address of",
        ),
        ('[device]\nbind = "x"\nconnect = "ipc://b"', "device.bind: cannot bind to 'x': expected"),
        (
            '[device]\nbind = "ipc://a"\nconnect = ["ipc://b", "tcp://h"]',
            "device.connect: cannot connect to 'tcp://h': expected tcp://HOST:PORT",
        ),
        (
            '[device]\nbind = "tcp://0.0.0.0:5571"\nconnect = "ipc://b"',
            "every host on the network could connect; make keys with `wmp keys` and name them",
        ),
        ('[device]\nbind = "inproc://a"\nconnect = "ipc://b"', "use ipc://PATH or tcp://"),
    ],
)
def test_an_error_in_a_definition_names_file_and_key(folder, text, expected):
    Path("d.toml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_devices("d.toml")

    assert str(raised.value).startswith("d.toml: ")
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("connect", "bind", "expected"),
    [
        ("ipc://a", "ipc://a", True),
        ("ipc://a", "ipc://b", False),
        ("tcp://localhost:1", "tcp://127.0.0.1:1", True),
        ("tcp://127.0.0.1:1", "tcp://*:1", True),
        ("tcp://[::1]:1", "tcp://[::]:1", True),
        ("tcp://10.0.0.1:1", "tcp://*:1", False),
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2", False),
        ("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", False),
        ("ipc://a", "tcp://127.0.0.1:1", False),
    ],
)
def test_which_addresses_reach_which_bindings(connect, bind, expected):
    assert meets(connect, bind) is expected
