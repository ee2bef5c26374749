"""A new protocol is a module of its own and one line of registration."""

from __future__ import annotations

import subprocess
import sys

import pytest
import zmq

import wmp
from tests.interop.gateways.ask_say_door import AskSayDoor
from wmp.errors import ConfigError
from wmp.gateways import Gateway
from wmp.gateways.definitions import load_gateway
from wmp.gateways.doors import DOORS
from wmp_programs import wmp as main

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"

TOML = """
[gateway]
bind = "tcp://127.0.0.1:*"

[[gateway.ask_say]]
bind = "tcp://127.0.0.1:*"
role = "shout"
"""


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(DOORS, "ask_say", AskSayDoor)  # the one line


def test_a_door_of_a_new_protocol_serves_a_request(context):
    with (
        Gateway(AskSayDoor(ANY, role="shout"), bind=ANY, context=context) as gateway,
        wmp.Worker(*gateway.endpoints, handlers={"shout": bytes.upper}, context=context),
        context.socket(zmq.DEALER) as client,
    ):
        client.linger, client.rcvtimeo = 0, 60_000
        client.connect(gateway.doors[0][0])
        client.send_multipart([b"ASK", b"hello"])
        assert client.recv_multipart() == [b"SAY", b"HELLO"]
        assert gateway.workers() == {}
        assert gateway.statistics().doors == (0,)


def test_a_definition_has_a_table_of_the_new_protocol(tmp_path, registered):
    file = tmp_path / "gateway.toml"
    file.write_text(TOML, encoding="utf-8")
    assert load_gateway(file).doors == (AskSayDoor(ANY, role="shout"),)


def test_a_table_without_a_registered_door_is_refused(tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text(TOML, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"gateway\.ask_say is not a known key"):
        load_gateway(file)


def test_the_program_prints_the_door_of_a_new_protocol(tmp_path, registered, monkeypatch, capsys):
    file = tmp_path / "gateway.toml"
    file.write_text(TOML, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["wmp", "gateway", "check", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "clients  ask-say          tcp://127.0.0.1:*  role shout" in capsys.readouterr().out


def test_the_program_has_the_flag_of_a_new_protocol():
    start = (
        "from tests.interop.gateways.ask_say_door import AskSayDoor\n"
        "from wmp.gateways.doors import DOORS\n"
        "DOORS['ask_say'] = AskSayDoor\n"
        "from wmp_programs import wmp\n"
        "wmp()"
    )
    command = [sys.executable, "-c", start, "gateway", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "--ask-say ENDPOINT" in done.stdout
