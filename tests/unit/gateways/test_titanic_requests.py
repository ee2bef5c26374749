"""The requests of Titanic in a store, with ends of the process at every step."""

from __future__ import annotations

import itertools

import pytest

from wmp import SqliteStore
from wmp.errors import StoreFull, StoreUnavailable
from wmp.gateways.titanic.quotas import refuse_service
from wmp.gateways.titanic.requests import RequestRefused, TitanicLimits, TitanicRequests
from wmp.testing.store_worlds.reference_store import ReferenceStore


class Disk:
    """A store that outlives the servers, and a clock."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.store = ReferenceStore(lambda: self.now)
        self._ids = itertools.count(1)

    def open(self, **limits: float) -> TitanicRequests:
        return TitanicRequests(
            self.store, lambda: f"{next(self._ids):032x}", TitanicLimits(**limits)
        )

    def kill(self, requests: TitanicRequests) -> None:
        """Let the process of a requests die."""
        self.store.died.add(requests._me.number)

    def wait(self, seconds: float, *alive: TitanicRequests) -> None:
        """Let time pass; the living servers renew what they hold."""
        for _ in range(round(seconds)):
            self.now += 1.0
            for requests in alive:
                requests.renew()


@pytest.fixture
def disk():
    return Disk()


@pytest.mark.rule("MDP-8.1", "MDP-8.3", "MDP-8.4", "MDP-8.5")
def test_a_request_is_stored_done_read_and_closed(disk):
    requests = disk.open()
    id = requests.request("echo", (b"hello", b""))
    assert len(id) == 32
    assert requests.reply(id) == (b"300", ())
    assert requests.waiting() == ["echo"]
    (taken,) = requests.take("echo", 10)
    assert (taken.body, requests.waiting(), requests.reply(id)) == (
        (b"hello", b""),
        [],
        (b"300", ()),
    )
    requests.finish(taken, (b"olleh", b""))
    disk.now += 6 * 24 * 3600
    requests.renew()
    for _ in range(2):
        assert requests.reply(id.upper()) == (b"200", (b"olleh", b""))
    for _ in range(2):
        requests.close_request(id)
        assert requests.reply(id) == (b"400", ())
    assert disk.store.list() == []


@pytest.mark.rule("MDP-8.3", "MDP-8.4")
@pytest.mark.parametrize("id", ["", "x", "g" * 32, "0" * 31, "0" * 33, "0" * 32, "é" * 32])
def test_other_ids_are_unknown(disk, id):
    requests = disk.open()
    requests.close_request(id)
    assert requests.reply(id) == (b"400", ())


@pytest.mark.rule("MDP-8.4")
def test_a_request_that_waits_is_closed_at_once_and_one_that_is_done_at_its_end(disk):
    requests = disk.open()
    first, second, third = (requests.request("echo", (b"x",)) for _ in range(3))
    requests.close_request(first)
    taken = requests.take("echo", 10)
    assert len(taken) == 2
    for id in (second, third):
        requests.close_request(id)
        assert requests.reply(id) == (b"400", ())
    requests.finish(taken[0], (b"y",))
    requests.give_back(taken[1], 0.0)
    assert (requests.reply(second), requests.waiting()) == ((b"400", ()), [])
    assert disk.store.list() == []


@pytest.mark.rule("MDP-8.2", "MDP-8.8")
def test_a_request_that_got_no_reply_waits_and_is_taken_again(disk):
    requests = disk.open()
    id = requests.request("echo", (b"x",))
    (taken,) = requests.take("echo", 1)
    requests.give_back(taken, 4.0)
    assert requests.waiting() == []
    disk.wait(4, requests)
    assert requests.waiting() == ["echo"]
    (again,) = requests.take("echo", 1)
    assert requests.reply(id) == (b"300", ())
    requests.finish(again, (b"y",))
    assert requests.reply(id) == (b"200", (b"y",))


@pytest.mark.rule("MDP-8.7")
def test_two_servers_on_one_store_do_each_request_once_at_a_time(disk):
    first, second = disk.open(), disk.open()
    ids = [first.request("echo", (b"%d" % n,)) for n in range(4)]
    taken = first.take("echo", 2)
    others = second.take("echo", 10)
    assert len({request.id for request in (*taken, *others)}) == 4
    for request in others:
        second.finish(request, request.body)
    disk.kill(first)
    disk.wait(12, second)
    again = second.take("echo", 10)
    assert {request.id for request in again} == {request.id for request in taken}
    for request in again:
        second.finish(request, request.body)
    assert [second.reply(id) for id in ids] == [(b"200", (b"%d" % n,)) for n in range(4)]


STEPS = ("request", "take", "done", "finish", "reply", "close", None)


@pytest.mark.rule("MDP-8.7", "MDP-8.2")
@pytest.mark.parametrize("end", STEPS)
@pytest.mark.parametrize("before", [True, False])
def test_the_process_may_end_before_and_after_every_step(disk, end, before):
    """A client that has an id gets the reply, whatever ends; every step is taken again."""
    servers = [disk.open()]
    left = 1

    def run(step, act):
        """Take a step; the process dies once before it or after it, and another one goes on."""
        nonlocal left
        if step == end and left and before:
            left = 0
            disk.kill(servers[-1])
            servers.append(disk.open())
            disk.wait(12, servers[-1])
            return None
        result = act(servers[-1])
        if step == end and left:
            left = 0
            disk.kill(servers[-1])
            servers.append(disk.open())
            disk.wait(12, servers[-1])
            return None
        return result

    id = None
    while id is None:
        id = run("request", lambda requests: requests.request("echo", (b"x",)))
    runs = 0
    for _ in range(5):
        if servers[-1].reply(id)[0] == b"200":
            break
        taken = run("take", lambda requests: requests.take("echo", 10))
        for request in taken or ():
            runs += 1
            run("done", lambda requests: None)
            run("finish", lambda requests, request=request: requests.finish(request, (b"y",)))
    assert servers[-1].reply(id) == (b"200", (b"y",))
    run("reply", lambda requests: requests.reply(id))
    assert servers[-1].reply(id) == (b"200", (b"y",))
    run("close", lambda requests: requests.close_request(id))
    servers[-1].close_request(id)
    assert servers[-1].reply(id) == (b"400", ())
    assert runs <= 4


@pytest.mark.rule("MDP-8.7")
def test_a_server_that_was_stopped_for_long_goes_on_as_another_instance(disk):
    first, second = disk.open(), disk.open()
    id = first.request("echo", (b"x",))
    (taken,) = first.take("echo", 1)
    disk.wait(20, second)
    first.finish(taken, (b"y",))
    first.request("echo", (b"z",))
    assert second.reply(id) == (b"200", (b"y",))


@pytest.mark.rule("MDP-8.4", "MDP-8.7")
def test_a_closed_request_of_a_dead_process_is_forgotten(disk):
    first = disk.open()
    id = first.request("echo", (b"x",))
    first.take("echo", 1)
    first.close_request(id)
    disk.kill(first)
    second = disk.open()
    assert second.reply(id) == (b"400", ())
    disk.wait(72, second)
    assert disk.store.list() == []


@pytest.mark.rule("MDP-8.4")
def test_a_close_at_the_moment_of_the_reply_wins(disk, monkeypatch):
    first, second = disk.open(), disk.open()
    id = first.request("echo", (b"x",))
    (taken,) = first.take("echo", 1)
    look = first._forget_if_closed

    def look_then_close(taken):
        is_closed = look(taken)
        second.close_request(id)
        return is_closed

    monkeypatch.setattr(first, "_forget_if_closed", look_then_close)
    first.finish(taken, (b"y",))
    second.renew()
    assert second.reply(id) == (b"400", ())
    assert (disk.store.list(), second._closing) == ([], set())


@pytest.mark.rule("MDP-8.1", "MDP-8.6")
def test_a_full_store_gives_no_id(disk, tmp_path):
    store = SqliteStore(tmp_path / "store", max_bytes=1 << 20)
    requests = TitanicRequests(store)
    ids = []

    def fill():
        for _ in range(10):
            ids.append(requests.request("echo", (b"x" * 200_000,)))

    with pytest.raises(StoreFull, match="maximum size"):
        fill()
    assert ids
    for id in ids:
        assert requests.reply(id) == (b"300", ())
    requests.close_request(ids.pop())
    assert requests.reply(requests.request("echo", (b"x",))) == (b"300", ())
    requests.close()


DAY = 24 * 3600


def store_all(requests, count, service="echo", client=b"", size=1):
    """Store requests until one is refused; return the number of those that were stored."""
    for number in range(count):
        try:
            requests.request(service, (b"x" * size,), client)
        except RequestRefused:
            return number
    return count


@pytest.mark.rule("MDP-8.10")
@pytest.mark.parametrize(
    "service", ["titanic.request", "titanic.reply", "titanic.close", "titanic.x", "mmi.service"]
)
def test_services_of_titanic_and_of_the_broker_are_not_for_stored_requests(service):
    assert "is not for stored requests" in refuse_service(service)
    assert refuse_service("titanic") == refuse_service("echo") == ""


@pytest.mark.rule("MDP-8.11")
def test_a_client_has_half_of_what_the_others_leave(disk):
    requests = disk.open(limit=80)
    requests.quotas.staffed.update(("a", "b", "c", "d"))
    assert store_all(requests, 100, "a", b"one") == 40
    assert store_all(requests, 1, "b", b"one") == 0
    assert store_all(requests, 100, "b", b"two") == 20
    (taken, *_) = requests.take("a", 1)
    requests.finish(taken, (b"y",))  # a stored reply takes room too
    assert store_all(requests, 1, "c", b"one") == 0
    # Connections that are not known are bounded by their service alone.
    assert store_all(requests, 100, "c") == 10
    assert store_all(requests, 100, "c", b"three") == 0


@pytest.mark.rule("MDP-8.11")
def test_the_bytes_of_a_client_and_a_service_are_bounded(disk):
    requests = disk.open(limit_bytes=100_000)
    requests.quotas.staffed.update(("a", "b"))
    assert 4 <= store_all(requests, 100, "a", b"one", 10_000) <= 5
    assert store_all(requests, 1, "a", b"two", 10_000) == 0
    assert store_all(requests, 100, "b", b"two", 10_000) >= 2
    assert store_all(requests, 1, "b", b"three", 100_000) == 0


@pytest.mark.rule("MDP-8.11")
def test_services_without_workers_have_a_quarter_together(disk):
    requests = disk.open(limit=400)
    stored = [store_all(requests, 1, f"nobody{number}") for number in range(200)]
    assert sum(stored) == 100
    with pytest.raises(RequestRefused, match="without workers have their share"):
        requests.request("echo", (b"x",), b"honest")
    id = requests.request("echo", (b"x",), b"honest", lambda: True)
    assert requests.reply(id) == (b"300", ())


@pytest.mark.rule("MDP-8.11")
def test_what_is_closed_or_purged_makes_way_for_others(disk):
    requests = disk.open(limit=8, reply_ttl=5.0)
    requests.quotas.staffed.add("echo")
    ids = [requests.request("echo", (b"x",), b"c") for _ in range(4)]
    assert store_all(requests, 1, client=b"c") == 0
    requests.close_request(ids[0])
    assert store_all(requests, 2, client=b"c") == 1
    for taken in requests.take("echo", 10):
        requests.finish(taken, (b"y",))
    disk.wait(6, requests)
    assert requests.quotas.all.count == 0
    requests.quotas.staffed.add("echo")
    assert store_all(requests, 9, client=b"c") == 4


@pytest.mark.rule("MDP-8.11")
def test_another_server_counts_what_is_stored_already(disk):
    disk.open(limit=80).request("echo", (b"x",))
    assert disk.open(limit=80).quotas.all.count == 1


@pytest.mark.rule("MDP-8.12")
def test_a_request_without_a_reply_is_given_up(disk):
    requests = disk.open(request_ttl=3 * DAY)
    id = requests.request("nobody", (b"x",))
    disk.now += 3 * DAY + 1
    requests.renew()
    assert requests.waiting() == []
    assert requests.reply(id) == (b"500 the request got no reply in time", ())
    for _ in range(2):
        disk.now += 2 * 3600
        requests.renew()
    assert requests.reply(id) == (b"400", ())
    assert disk.store.list() == []


@pytest.mark.rule("MDP-8.12")
def test_a_reply_that_nobody_fetches_is_purged(disk):
    requests = disk.open()
    id = requests.request("echo", (b"x",))
    (taken,) = requests.take("echo", 1)
    requests.finish(taken, (b"y",))
    disk.now += 6 * DAY
    requests.renew()
    assert requests.reply(id) == (b"200", (b"y",))
    for _ in range(2):
        disk.now += DAY + 1
        requests.renew()
    assert requests.reply(id) == (b"400", ())
    assert disk.store.list() == []


class BrokenCommit:
    """Lets the next batch take effect, and raise an error nevertheless."""

    def __init__(self, monkeypatch) -> None:
        apply = ReferenceStore.apply

        def commit_and_fail(store, me, number, batch):
            apply(store, me, number, batch)
            monkeypatch.setattr(ReferenceStore, "apply", apply)
            raise StoreUnavailable("the disk is away")

        monkeypatch.setattr(ReferenceStore, "apply", commit_and_fail)


@pytest.mark.rule("MDP-8.1", "MDP-8.6", "MDP-8.7")
def test_a_batch_that_took_effect_in_spite_of_its_error_hides_no_other(disk, monkeypatch):
    requests = disk.open()
    BrokenCommit(monkeypatch)
    with pytest.raises(StoreUnavailable):
        requests.request("echo", (b"x",))
    id = requests.request("echo", (b"y",))
    assert requests.reply(id) == (b"300", ())
    BrokenCommit(monkeypatch)
    with pytest.raises(StoreUnavailable):
        requests.take("echo", 10)
    disk.wait(13, requests)
    assert {request.body for request in requests.take("echo", 10)} == {(b"x",), (b"y",)}


@pytest.mark.rule("MDP-8.1", "MDP-8.6")
def test_a_request_that_fails_uses_up_no_number(disk, monkeypatch):
    requests = disk.open()
    numbers = list(requests._numbers)

    def fail(self, me, number, batch):
        raise StoreUnavailable("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(ReferenceStore, "apply", fail)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                requests.request("echo", (b"x",))
    assert requests._numbers == numbers


@pytest.mark.rule("MDP-8.6")
def test_an_error_of_the_store_is_raised_and_the_server_goes_on(disk, monkeypatch):
    requests = disk.open()

    def fail(self, me, number, batch):
        monkeypatch.undo()
        raise StoreUnavailable("the disk is away")

    monkeypatch.setattr(ReferenceStore, "apply", fail)
    with pytest.raises(StoreUnavailable):
        requests.request("echo", (b"x",))
    id = requests.request("echo", (b"y",))
    assert [request.body for request in requests.take("echo", 10)] == [(b"y",)]
    assert requests.reply(id) == (b"300", ())
