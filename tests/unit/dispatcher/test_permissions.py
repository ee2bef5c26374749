"""Permissions of tokens and of CURVE keys: each cell of the table in ``specs/security.md``."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.utils.z85
from click.testing import CliRunner

from tests.unit.dispatcher.http_net import FakeWorker, Net, dispatcher_on
from tests.unit.dispatcher.test_dispatcher_api import JOBS, WORKER, WORKERS, Client, serve
from wmp.cli.keys import keys
from wmp.dispatcher.api import ACTS, act_of
from wmp.dispatcher.registration import SECRET_HEADER
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.tokens import TokenTable, read_token, read_tokens
from wmp.errors import ConfigError
from wmp.runtime.common.permissions import (
    PERMITTED,
    Act,
    Permission,
    PermissionHolder,
    read_permissions,
)
from wmp.runtime.sockets.security import Gate, Security

SPEC = Path(__file__).parents[3] / "specs" / "security.md"
ID = "0" * 23 + "9"
DONE = {"attempt": 1, "status": "s", "result": 1}
REQUESTS: dict[Act, list[tuple[str, str, Any]]] = {
    Act.CREATE_JOB: [("POST", JOBS, {"type": "a"})],
    Act.READ_JOBS: [
        ("GET", JOBS, None),
        ("GET", f"{JOBS}{ID}", None),
        ("GET", f"{JOBS}{ID}/history", None),
    ],
    Act.CANCEL_JOB: [("DELETE", f"{JOBS}{ID}", None)],
    Act.COMPLETE_JOB: [("POST", f"{JOBS}{ID}/completion", DONE)],
    Act.REGISTER_WORKER: [("PUT", WORKERS, WORKER)],
    Act.RESIGN_WORKER: [
        ("DELETE", f"{WORKERS}{ID}", None),
        ("DELETE", WORKERS, {"hostname": "127.0.0.1", "port": 9}),
    ],
    Act.READ_WORKERS: [
        ("GET", WORKERS, None),
        ("GET", f"{WORKERS}{ID}", None),
        ("GET", "/dispatcher/capacity", None),
    ],
    Act.READ_DESCRIPTION: [("GET", "/openapi.json", None)],
    Act.OTHER_REQUEST: [
        ("GET", "/nothing", None),
        ("PATCH", JOBS, None),
        ("POST", f"{JOBS}%0A", {"type": "a"}),
        ("OPTIONS", WORKERS, None),
    ],
}
CURVE_ACTS = {
    Act.CONNECT_WORKER: b"wmp",
    Act.CONNECT_MANAGER: b"wmp-managers",
    Act.CONNECT_DOOR: b"wmp-doors",
}


def one_token_each() -> TokenTable:
    return TokenTable(
        {f"token-{name}": PermissionHolder(name, {Permission(name)}) for name in Permission}
    )


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-{name}"}


def permitted(act: Act, permission: Permission) -> bool:
    return permission is Permission.ADMIN or permission in PERMITTED[act]


@pytest.mark.rule("DSP-12.2")
def test_the_page_shows_the_table() -> None:
    lines = SPEC.read_text(encoding="utf-8").splitlines()
    head = "| act | submit | work | observe | steer | admin |"
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[lines.index(head) + 2 :])
    shown = {}
    for row in rows:
        act, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        shown[act] = cells
    assert shown == {
        str(act): ["yes" if permitted(act, permission) else "" for permission in Permission]
        for act in Act
    }


@pytest.mark.rule("DSP-12.2")
def test_each_cell_of_the_http_api(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        for (act, requests), permission in itertools.product(REQUESTS.items(), Permission):
            for method, path, body in requests:
                answer = await client.request(method, path, json=body, headers=bearer(permission))
                refused = (
                    answer.status_code == 403 and answer.json().get("field") == "Authorization"
                )
                assert refused == (not permitted(act, permission)), (method, path, permission)
                if refused:
                    assert repr(str(permission)) in answer.json()["error"]
                    assert str(act) in answer.json()["error"]

    serve(tmp_path, test, token=one_token_each())
    assert set(REQUESTS) | set(CURVE_ACTS) | {Act.RESIGN_ANY_WORKER} == set(Act)


@pytest.mark.rule("DSP-12.2", "DSP-10.2")
@pytest.mark.parametrize("permission", Permission)
def test_a_worker_resigns_without_its_secret_by_an_admin_only(
    permission: Permission, tmp_path: Path
) -> None:
    async def test(net: Net, client: Client) -> None:
        registered = await client.put(WORKERS, json=WORKER, headers=bearer("work"))
        path = f"{WORKERS}{registered.json()['_id']}"
        answer = await client.delete(path, headers=bearer(permission))
        done = permitted(Act.RESIGN_ANY_WORKER, permission)
        assert answer.status_code == (200 if done else 403)
        if permission is Permission.WORK:
            assert answer.json()["field"] == SECRET_HEADER

    serve(tmp_path, test, token=one_token_each())


@pytest.mark.rule("DSP-12.2")
def test_each_route_has_an_act(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        description = (await client.get("/openapi.json")).json()
        for path, operations in description["paths"].items():
            for method in operations:
                act = act_of(method.upper(), path.replace("{id}", ID))
                assert path == "/healthz" or act is not Act.OTHER_REQUEST, (method, path)

    serve(tmp_path, test)
    assert {act for _, _, act in ACTS} == set(REQUESTS) - {Act.OTHER_REQUEST}


@pytest.mark.rule("DSP-12.2")
@pytest.mark.parametrize("act", CURVE_ACTS)
def test_each_cell_of_curve_keys(act: Act) -> None:
    public = {permission: zmq.curve_keypair()[0] for permission in Permission}
    plain, stranger = zmq.curve_keypair()[0], zmq.curve_keypair()[0]
    security = Security.generate(
        allowed=[*public.values(), plain],
        managers=[*public.values(), plain],
        permissions={key: {permission} for permission, key in public.items()},
    )
    context: zmq.Context[Any] = zmq.Context()
    gate = Gate(context, security)
    question = context.socket(zmq.REQ)
    question.connect(Gate.ENDPOINT)

    def admitted(key: bytes) -> bool:
        frames = [b"1.0", b"1", CURVE_ACTS[act], b"127.0.0.1", b"", b"CURVE"]
        question.send_multipart([*frames, zmq.utils.z85.decode(key)])
        while not question.poll(10):
            gate.answer()
        return bool(question.recv_multipart()[2] == b"200")

    try:
        for permission, key in public.items():
            assert admitted(key) == permitted(act, permission), permission
        # A key whose file names no permissions may do everything.
        assert admitted(plain)
        assert not admitted(stranger)
    finally:
        question.close(linger=0)
        gate.close()
        context.term()


# -- files --------------------------------------------------------------------------------------


def token_file(folder: Path, text: str) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.rule("DSP-12.1")
def test_a_file_names_tokens_and_their_permissions(tmp_path: Path) -> None:
    text = "# name permissions token\n\nweb  submit,observe  abc\nops admin def\n"
    table = read_tokens(token_file(tmp_path, text))
    web, ops = table.holder(b"abc"), table.holder(b"def")
    assert web == PermissionHolder("web", {Permission.SUBMIT, Permission.OBSERVE})
    assert ops == PermissionHolder("ops", {Permission.ADMIN})
    assert table.holder(b"ab") is None
    assert table.token_of("web") == "abc"
    assert table.token_of("other") is None
    assert "abc" not in repr(table)


@pytest.mark.rule("DSP-12.1")
def test_a_file_with_a_single_token_permits_everything(tmp_path: Path) -> None:
    holder = read_tokens(token_file(tmp_path, "abc\n")).holder(b"abc")
    assert holder is not None
    assert all(holder.may(act) for act in Act)
    named = token_file(tmp_path, "gpu work abc\n")
    assert read_token(named) == "abc"
    with pytest.raises(ConfigError, match="contains 2 tokens; expected the one of this worker"):
        read_token(token_file(tmp_path, "gpu work abc\nweb submit def\n"))


@pytest.mark.rule("DSP-12.1")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "contains no token"),
        ("abc\ndef\n", "line 1 of --token-file .* has 1 words"),
        ("web submit abc more\n", "has 4 words"),
        ("web submits abc\n", "names the permission 'submits'; expected submit, work, observe"),
        ("web submit, abc\n", "names the permission ''"),
        ("web submit abc\nweb work def\n", "line 2 .* for the second time"),
        ("web submit abc\nops work abc\n", "line 2 .* for the second time"),
    ],
)
def test_a_malformed_token_file_is_refused(text: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=named):
        read_tokens(token_file(tmp_path, text))


@pytest.mark.rule("DSP-12.1")
def test_a_key_file_names_its_permissions(tmp_path: Path) -> None:
    own, allowed = tmp_path / "own", tmp_path / "allowed"
    own.mkdir()
    allowed.mkdir()
    make_keys(f"{own}/node")
    make_keys(f"{allowed}/gpu", "--permissions", "observe,work")
    make_keys(f"{allowed}/any")
    security = Security.load(own / "node.key_secret", allowed=allowed)
    assert security.allowed is not None
    assert len(security.allowed) == 2
    assert list(security.permissions.values()) == [read_permissions("work,observe", "test")]
    path = allowed / "any.key"
    path.write_text(path.read_text().replace("metadata\n", 'metadata\n permissions = "every"\n'))
    with pytest.raises(ConfigError, match=r"any.key names the permission 'every'"):
        Security.load(own / "node.key_secret", allowed=allowed)


def make_keys(*argv: str) -> None:
    assert CliRunner().invoke(keys, argv).exit_code == 0


# -- tokens of workers --------------------------------------------------------------------------


@pytest.mark.rule("DSP-12.3")
def test_a_worker_gets_the_token_with_which_it_registered(tmp_path: Path) -> None:
    seen: list[str | None] = []
    checked = asyncio.Event()

    class Noting(FakeWorker):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            head = dict(scope["headers"]).get(b"authorization")
            seen.append(None if head is None else head.decode())
            await super().__call__(scope, receive, send)
            checked.set()

    async def test() -> None:
        net = Net()
        net.apps[8082] = Noting()
        settings = DispatcherSettings(timer_interval=5)
        table = one_token_each()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", settings, token=table),
            net.client(8081) as client,
        ):
            await client.put(WORKERS, json=WORKER, headers=bearer("work"))
            await checked.wait()
            await client.post(JOBS, json={"type": "resize"}, headers=bearer("submit"))
            await net.apps[8082].given.get()

    asyncio.run(test())
    assert set(seen) == {"Bearer token-work"}
    assert not re.search("admin", str(seen))
