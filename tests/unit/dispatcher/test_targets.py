"""The hosts to which a dispatcher sends requests. Names are resolved by tables of the tests, and
nothing is sent to an address beyond loopback."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from tests.unit.dispatcher.dispatchers import SETTINGS
from tests.unit.dispatcher.http_net import FakeWorker, Net, dispatcher_on
from tests.unit.dispatcher.test_dispatcher_api import JOBS, WORKER, WORKERS, Client, serve
from wmp.dispatcher.api import make_api
from wmp.dispatcher.http_client import BoundedClient, RequestFailed
from wmp.dispatcher.http_server import HttpServer
from wmp.dispatcher.pinned_client import PinnedClient, PinnedTarget
from wmp.dispatcher.records import CallbackRecord, WorkerRecord, worker_number
from wmp.dispatcher.service import Dispatcher
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.targets import TargetRefused, Targets, network_address, never, read_target
from wmp.errors import ConfigError
from wmp.store.sqlite.sqlite_store import SqliteStore

LOCAL = "127.0.0.1"
CLIENT = "192.0.2.7"


class Table:
    """A resolver that knows some names, and counts the questions."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names: dict[str, Sequence[str]] = {
            name.replace("_", "."): addresses for name, addresses in names.items()
        }
        self.asked: list[str] = []

    async def __call__(self, hostname: str) -> Sequence[str]:
        self.asked.append(hostname)
        if hostname not in self.names:
            raise OSError("unknown name")
        return self.names[hostname]


def pin(
    hostname: str,
    client: str | None,
    *allowed: str,
    port: int = 80,
    names: Mapping[str, Sequence[str]] | None = None,
    own_ports: Sequence[int] = (),
) -> str:
    table = Table()
    table.names.update(names or {})
    targets = Targets([read_target(text) for text in allowed], table, own_ports)
    return asyncio.run(targets.pin(hostname, port, client))


# -- what is allowed ----------------------------------------------------------------------------


@pytest.mark.rule("DSP-11.1")
@pytest.mark.parametrize(
    ("hostname", "client", "address"),
    [
        (LOCAL, LOCAL, LOCAL),
        (LOCAL, "::1", LOCAL),
        ("127.0.0.9", LOCAL, "127.0.0.9"),
        ("localhost", LOCAL, "::1"),
        (CLIENT, CLIENT, CLIENT),
        (f"::ffff:{CLIENT}", CLIENT, CLIENT),
        (CLIENT, f"::ffff:{CLIENT}", CLIENT),
        ("2001:DB8:0::5", "2001:db8::5", "2001:db8::5"),
        ("node.example", CLIENT, CLIENT),
    ],
)
def test_the_address_of_the_client_is_allowed(hostname: str, client: str, address: str) -> None:
    names = {"localhost": ["::1", LOCAL], "node.example": ["198.51.100.1", CLIENT]}
    assert pin(hostname, client, names=names) == address


@pytest.mark.rule("DSP-11.1")
@pytest.mark.parametrize(
    ("hostname", "client"),
    [
        (LOCAL, CLIENT),
        ("localhost", CLIENT),
        ("::1", CLIENT),
        ("::ffff:127.0.0.1", CLIENT),
        ("192.0.2.8", CLIENT),
        ("192.0.2.8", LOCAL),
        ("other.example", CLIENT),
        ("unknown.example", CLIENT),
        (CLIENT, None),
    ],
)
def test_any_other_address_is_refused_by_name(hostname: str, client: str | None) -> None:
    names = {"localhost": ["::1", LOCAL], "other.example": ["192.0.2.8", LOCAL]}
    with pytest.raises(TargetRefused) as caught:
        pin(hostname, client, names=names)
    assert str(caught.value).startswith(hostname)
    if hostname != "unknown.example":
        assert "--allow-target" in str(caught.value)


@pytest.mark.rule("DSP-11.1")
@pytest.mark.parametrize(
    ("target", "hostname", "port"),
    [
        ("hooks.example", "hooks.example", 80),
        ("Hooks.Example.", "hooks.example", 80),
        ("hooks.example:80", "hooks.example", 80),
        ("192.0.2.8", "192.0.2.8", 9),
        ("192.0.2.0/24", "192.0.2.8", 9),
        ("192.0.2.0/24:80,8000-8999", "192.0.2.8", 8500),
        ("[2001:db8::/32]:443", "2001:db8::1", 443),
        ("2001:db8::/32", "2001:db8::1", 9),
        ("[2001:db8::1]:443", "2001:db8::1", 443),
        ("127.0.0.0/8:9000", "127.0.0.1", 9000),
        ("0.0.0.0/0", "192.0.2.8", 9),
    ],
)
def test_a_flag_allows_a_host_or_a_network(target: str, hostname: str, port: int) -> None:
    names = {"hooks.example": ["192.0.2.8"]}
    assert pin(hostname, CLIENT, target, port=port, names=names)
    with pytest.raises(TargetRefused):
        pin("198.51.100.3" if "/0" not in target else "::2", CLIENT, target, port=port)
    if ":80" in target or ":443" in target or ":9000" in target:
        with pytest.raises(TargetRefused):
            pin(hostname, CLIENT, target, port=81, names=names)


@pytest.mark.rule("DSP-11.1")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://hooks.example",
        "hooks.example:",
        "hooks.example:x",
        "hooks.example:70000",
        "hooks.example:9-8",
        "10.0.0.0/99",
        "300.1.1.1",
        "[::1",
        "[::1]x",
        "a b",
    ],
)
def test_a_malformed_target_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--allow-target is"):
        read_target(text)


# -- what is never allowed ----------------------------------------------------------------------

NEVER = [
    "169.254.169.254",
    "169.254.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "fe80::1",
    "fd00:ec2::254",
    "100.100.100.200",
    "192.0.0.192",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "ff02::1",
    "255.255.255.255",
]


@pytest.mark.rule("DSP-11.2")
@pytest.mark.parametrize("address", NEVER)
def test_no_flag_allows_addresses_of_one_link_or_of_cloud_metadata(address: str) -> None:
    everything = ("0.0.0.0/0", "::/0", "any.example")
    names = {"any.example": [address]}
    for hostname in (address, "any.example"):
        with pytest.raises(TargetRefused, match="to which no request is ever sent"):
            pin(hostname, address, *everything, names=names)


@pytest.mark.rule("DSP-11.2")
@pytest.mark.parametrize("text", ["169.254.0.0/16", "169.254.169.254:80", "fe80::/10"])
def test_a_flag_that_names_only_such_addresses_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no request is ever sent"):
        read_target(text)


@pytest.mark.rule("DSP-11.2", "DSP-11.4")
def test_each_request_is_checked_again() -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        return httpx.Response(200, stream=httpx.ByteStream(b""))

    async def test() -> None:
        table = Table(old_example=[LOCAL], link_example=["169.254.169.254"])
        targets = Targets([read_target("old.example"), read_target("link.example")], table, [8081])
        client = PinnedClient(BoundedClient(5.0, None, httpx.MockTransport(answer)), targets)
        for target in (
            PinnedTarget("h", 80, "169.254.169.254"),
            PinnedTarget("169.254.169.254", 80, None),
            PinnedTarget("h", 8081, LOCAL),
            PinnedTarget("new.example", 80, None),
            PinnedTarget("link.example", 80, None),
        ):
            with pytest.raises(RequestFailed, match="is refused") as caught:
                await client.ask("GET", target, "/")
            assert not caught.value.sent
        # Entries that an earlier version wrote have no address.
        await client.ask("GET", PinnedTarget(LOCAL, 80, None), "/")
        await client.ask("GET", PinnedTarget("old.example", 81, None), "/")
        await client.close()

    asyncio.run(test())
    assert sent == ["http://127.0.0.1/", "http://127.0.0.1:81/"]


@pytest.mark.rule("DSP-11.3")
@pytest.mark.parametrize("hostname", [LOCAL, "127.0.0.2", "::1", "localhost"])
def test_the_own_ports_of_a_dispatcher_are_refused(hostname: str) -> None:
    names = {"localhost": ["::1", LOCAL]}
    with pytest.raises(TargetRefused, match="is a port of this dispatcher"):
        pin(hostname, LOCAL, "127.0.0.0/8", "::1", port=8081, names=names, own_ports=[8081])
    assert pin(hostname, LOCAL, port=8082, names=names, own_ports=[8081])
    # The port of another host is another port.
    assert pin(CLIENT, CLIENT, port=8081, own_ports=[8081]) == CLIENT


def test_all_addresses_of_loopback_are_one_network_address() -> None:
    assert {network_address(text) for text in (LOCAL, "127.9.9.9", "::1")} == {"loopback"}
    assert network_address(f"::ffff:{CLIENT}") == CLIENT
    assert network_address(None) is None
    assert never(ipaddress.ip_address(CLIENT)) is None


# -- the API ------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-11.1")
def test_a_worker_or_callback_elsewhere_is_refused(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        for hostname in ("192.0.2.8", "169.254.169.254", "unknown.example"):
            answer = await client.put(WORKERS, json={**WORKER, "hostname": hostname})
            assert (answer.status_code, answer.json()["field"]) == (403, "hostname")
            assert hostname in answer.json()["error"]
            callback = {"hostname": hostname, "port": 80}
            answer = await client.post(JOBS, json={"type": "a", "callback": callback})
            assert (answer.status_code, answer.json()["field"]) == (403, "callback.hostname")
        assert (await client.get(WORKERS)).json() == {"workers": []}
        assert (await client.get(JOBS)).json()["jobs"] == []
        assert all(line.split()[1].startswith("8081/") for line in net.seen)

    serve(tmp_path, test)


@pytest.mark.rule("DSP-11.4")
def test_a_name_is_resolved_once_and_its_address_is_used(tmp_path: Path) -> None:
    table = Table(worker_example=[LOCAL], hook_example=[LOCAL])
    seen: list[tuple[str, str]] = []

    class Noting(Net):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.port != 8081:
                seen.append((request.url.host, request.headers["host"]))
            return await super().handle_async_request(request)

    async def test() -> None:
        net = Noting()
        net.apps[8082], net.apps[9000] = worker, called = FakeWorker(), FakeWorker()
        settings = DispatcherSettings(timer_interval=5, ping_interval=20)
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", settings, targets=Targets((), table)),
            net.client(8081) as client,
        ):
            named = {**WORKER, "hostname": "worker.example"}
            secret = (await client.put(WORKERS, json=named)).json()["secret"]
            callback = {"hostname": "hook.example", "port": 9000}
            body = {"type": "resize", "callback": callback}
            id = (await client.post(JOBS, json=body)).json()["_id"]
            # From now on the names lead elsewhere.
            table.names = {"worker.example": ["169.254.169.254"], "hook.example": [CLIENT]}
            await worker.given.get()
            await client.post(
                f"{JOBS}{id}/completion",
                json={"attempt": 1, "status": "s", "result": 1},
                headers={"Wmp-Worker-Secret": secret},
            )
            assert (await called.given.get())["_id"] == id
        assert table.asked == ["worker.example", "hook.example"]
        assert {host for host, _ in seen} == {LOCAL}
        assert {head for _, head in seen} == {"worker.example:8082", "hook.example:9000"}

    asyncio.run(test())


@pytest.mark.rule("DSP-11.5")
def test_a_redirected_callback_goes_nowhere(tmp_path: Path) -> None:
    reached: list[str] = []

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])

    async def redirect(scope: Any, receive: Any, send: Any) -> None:
        head = [(b"location", b"http://127.0.0.1:9001/secret")]
        await send({"type": "http.response.start", "status": 307, "headers": head})
        await send({"type": "http.response.body", "body": b""})
        redirected.set()

    redirected = asyncio.Event()

    async def test(net: Net, client: Client) -> None:
        net.apps[9000], net.apps[9001] = redirect, elsewhere
        body = {"type": "a", "callback": {"hostname": LOCAL, "port": 9000}}
        id = (await client.post(JOBS, json=body)).json()["_id"]
        await client.delete(f"{JOBS}{id}")
        await redirected.wait()
        document = (await client.get(f"{JOBS}{id}")).json()
        assert document["callback"]["didCallbackSuccessfully"] is False
        assert reached == []

    serve(tmp_path, test, DispatcherSettings(timer_interval=5))


# -- loops --------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-7.4")
def test_callbacks_that_create_jobs_with_callbacks_end(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        # The other name of the dispatcher is one that it does not know.
        net.apps[8091] = net.apps[8081]
        callback = {"hostname": LOCAL, "port": 8091, "path": JOBS, "method": "POST"}
        body = {"type": "resize", "callback": callback}
        await client.post(JOBS, json=body)
        while True:
            jobs = (await client.get(JOBS)).json()["jobs"]
            for job in jobs:
                if job["status"] == "q":
                    await client.delete(f"{JOBS}{job['_id']}")
            if net.seen.count(f"POST 8091{JOBS}") == 4:
                break
        assert len((await client.get(JOBS)).json()["jobs"]) == 4
        deep = {"Wmp-Depth": "4"}
        answer = await client.post(JOBS, json=body, headers=deep)
        assert (answer.status_code, answer.json()["field"]) == (403, "callback")
        assert "callbacks.max_depth" in answer.json()["error"]
        # A job without a callback ends the chain itself.
        assert (await client.post(JOBS, json={"type": "a"}, headers=deep)).status_code == 201

    serve(tmp_path, test, DispatcherSettings(timer_interval=5))


@pytest.mark.rule("DSP-7.3", "DSP-7.4")
@pytest.mark.parametrize("name", ["Host", "wmp-depth"])
def test_a_callback_sets_neither_its_host_nor_its_depth(name: str, tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        callback = {"hostname": LOCAL, "port": 9000, "headers": {name: "0"}}
        answer = await client.post(JOBS, json={"type": "a", "callback": callback})
        assert answer.status_code == 400

    serve(tmp_path, test)


@pytest.mark.rule("DSP-11.3")
def test_a_dispatcher_over_sockets_sends_nothing_to_itself(tmp_path: Path) -> None:
    async def test() -> None:
        targets = Targets()
        dispatcher = Dispatcher(
            lambda: SqliteStore(tmp_path / "jobs.db", durability="process"),
            attrs.evolve(SETTINGS, timer_interval=5),
            targets=targets,
        )
        async with (
            dispatcher,
            HttpServer(make_api(dispatcher), LOCAL, 0) as server,
            httpx.AsyncClient(base_url=server.url, trust_env=False) as client,
        ):
            targets.add_own_ports([server.port])
            for hostname in (LOCAL, "127.0.0.3"):
                body = {**WORKER, "hostname": hostname, "port": server.port}
                assert (await client.put(WORKERS, json=body)).status_code == 403
                callback = {"hostname": hostname, "port": server.port, "path": JOBS}
                answer = await client.post(JOBS, json={"type": "a", "callback": callback})
                assert answer.status_code == 403
                assert "is a port of this dispatcher" in answer.json()["error"]
            # A record of an earlier version is refused when its request is due.
            id = worker_number(LOCAL, server.port)

            def write(store: Any) -> None:
                WorkerRecord(id, LOCAL, server.port, 1, {"a": 1}).write(store)
                CallbackRecord(77, LOCAL, server.port, "/", "POST").write(store)

            await dispatcher.read(write)
            while (worker := (await client.get(WORKERS)).json()["workers"][0])["lastError"] is None:
                await asyncio.sleep(0.005)
            assert "is a port of this dispatcher" in worker["lastError"]

    asyncio.run(test())


@pytest.mark.rule("DSP-11.6")
def test_the_loopback_of_another_host_is_refused(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = FakeWorker()
        id = (await client.put(WORKERS, json=WORKER)).json()["_id"]
        while not net.seen.count("GET 8082/health_check/"):
            await client.get(WORKERS)
        # From now on the entry is that of a dispatcher on another host.
        monkeypatch.setattr("wmp.dispatcher.targets.socket.gethostname", lambda: "elsewhere")
        while (worker := (await client.get(f"{WORKERS}{id}")).json())["lastError"] is None:
            pass
        assert "it is an address of loopback, and that of" in worker["lastError"]

    with pytest.MonkeyPatch.context() as monkeypatch:
        serve(tmp_path, test, DispatcherSettings(timer_interval=5, ping_interval=20))
