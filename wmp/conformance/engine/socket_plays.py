"""A live peer over sockets, in real time, scaled by the unit that it declares."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from math import ceil
from threading import Event
from typing import Any

import zmq
from attrs import define, evolve, field, frozen

from wmp.conformance.engine.play import play, terms_of
from wmp.conformance.script.case import Broken, Case, CaseResult, Unimplemented, Verdict
from wmp.conformance.script.stalls import WATCH
from wmp.conformance.wire.core_probes import PROBES, Stay, core_of, waited_for_core
from wmp.conformance.wire.process import PeerProcess, fill
from wmp.conformance.wire.wire import EPOCH, Connection, JobEnd, SubmittedJob, Terms
from wmp.message import Frame


def _own_host(number: int) -> str:
    """Choose a loopback address for one play of this process, if all of 127/8 is loopback.

    A free port of this address stays free until the testee binds the port, because no other play
    uses the address. A worker of an earlier play may still try the port of its ended manager.
    """
    if not sys.platform.startswith("linux"):
        return "127.0.0.1"
    process = os.getpid() % (253 * 253)
    return f"127.{1 + process // 253}.{1 + process % 253}.{1 + number % 254}"


_plays = itertools.count()
_MIN_GRACE = 0.3
"""The least time for "at once" in seconds, because the other process may run on a busy machine.
With a unit of less than 200 ms the time is shorter."""
_LONGEST_GRACE = 1.5
"""Limit of the units for "at once": a script that waits twice must end before the lock of a worker
times out."""
_START = 15.0
"""Seconds within which a testee must start."""
_HOP = 1 / 6
"""The part of the time for "at once" for which the kit may stall. An answer takes several steps,
and each step may be late by this part."""
_STALL = 0.25
"""Units for which the kit may stall if a message shows the breach. The kit's own peers answer
within a unit."""
_STARVED = 0.5
"""The part of the time for which a testee that has not started may have waited for a core."""
_TRIES = 4
"""Maximum number of slower plays of a case."""
_BROKEN = (Verdict.FAILED, Verdict.NON_STRICT)
_SURE, _SLOWER = 1000, 3
"""A case that fails is played again with a unit ``_SLOWER`` times as long, of at most ``_SURE``
milliseconds, and with as much more time for "at once".
"""
_EXPIRED = 6.5
"""Units of silence after which every testee has forgotten a peer."""
_LOOK_AT_CORE = 0.02
"""Seconds between two looks at the core of the testee."""
_LOOK = 100
"""Milliseconds between two checks whether the kit must end."""
_OUTCOMES = frozenset({"ok", "error", "cancelled", "timeout", "lost"})


class KitStopped(BaseException):
    """The kit must end; the case has no verdict."""


@frozen
class LiveTestee:
    """How to start or reach a live testee.

    Args:
        testee: manager, worker or device.
        command: Starts the testee (``specs/testee.md``); None for a testee that runs already.
            endpoint: The address that the testee or the kit binds; None for a free port.
            unit: Milliseconds of the testee's unit; ``{unit}`` in the command.
            grace: The least time for "at once" in seconds.
            over: An event that any thread may set; it ends all conversations and their testees.
    """

    testee: str
    command: str | None = None
    endpoint: str | None = None
    unit: int = 1000
    grace: float = _MIN_GRACE
    over: Event = field(factory=Event, eq=False)

    @property
    def own_unit(self) -> int:
        """The unit of the testee: the default when the command has no ``{unit}``."""
        scaled = self.command is None or "{unit}" in self.command
        return self.unit if scaled else 1000

    def wire(self, case: Case) -> SocketWire:
        """Start the testee for a case.

        Raises:
            Unimplemented: The command has no place for a setting that the case needs.
            OSError: The testee cannot be run.
        """
        terms = terms_of(case)
        command = self.command or "{slots}"
        if terms.slots > 1 and case.testee == "worker" and "{slots}" not in command:
            raise Unimplemented("the case needs more than one slot, but the command has no {slots}")
        word = "{managers}" if terms.dial_in else "{connect}"
        dials = case.testee == "manager" and terms.endpoints > 0
        if (terms.dial_in or dials) and word not in command:
            raise Unimplemented(
                f"the case is about managers that dial in, but the command has no {word}"
            )
        return SocketWire(self, terms)

    def play(self, case: Case) -> CaseResult:
        """Start the testee for a case and play the case. After a failure, play the case again more
        slowly.

        On a busy machine an answer may come late without breaking a rule, and a late answer looks
        like a breach of another rule than the true one. So a failure counts when two plays break
        the same rule. A testee that runs already is played once. A case that is void is played
        again.

        Raises:
            OSError: The testee cannot be run.
        """
        result, live = self._play_once(case), self
        broken: set[str] = set()
        for _ in range(_TRIES):
            if result.verdict in _BROKEN:
                if self.slower == self or result.rule in broken:
                    break
                broken.add(result.rule)
            elif result.verdict is not Verdict.VOID:
                break
            live = live.slower
            again = live._play_once(case)
            if again.verdict is Verdict.UNIMPLEMENTED:
                break
            result = again
        return result

    @property
    def slower(self) -> LiveTestee:
        """The same testee with a slower unit and more time to answer.

        A testee that runs already is not changed. Without ``{unit}`` in the command the testee
        keeps its unit, and only gets more time.
        """
        if self.command is None:
            return self
        unit = max(self.own_unit, min(_SURE, _SLOWER * self.own_unit))
        grace = min(self.grace * _SLOWER, _LONGEST_GRACE * unit / 1000)
        return evolve(self, unit=unit, grace=max(self.grace, grace))

    def _play_once(self, case: Case) -> CaseResult:
        try:
            wire = self.wire(case)
        except Unimplemented as reason:
            return CaseResult(case, Verdict.UNIMPLEMENTED, case.rules[0], str(reason))
        # Without a command the kit cannot submit jobs to a manager.
        works = self.command is not None or self.testee != "manager"
        return evolve(play(case, wire, still_works=works), stderr=wire.stderr)


@define(eq=False)
class SocketWire:
    """A :class:`~wmp.conformance.wire.wire.Wire` to a live testee."""

    live: LiveTestee
    terms: Terms
    may_end: bool = False
    epoch: int = EPOCH
    unit: int = field(init=False)
    _context: zmq.Context[Any] = field(init=False)
    _process: PeerProcess | None = field(default=None, init=False)
    _routers: list[zmq.Socket[Any]] = field(factory=list, init=False)
    _dealers: dict[Connection, zmq.Socket[Any]] = field(factory=dict, init=False)
    _poller: zmq.Poller = field(factory=zmq.Poller, init=False)
    _arrived: deque[tuple[Connection, Sequence[Frame]]] = field(factory=deque, init=False)
    _ends: list[JobEnd] = field(factory=list, init=False)
    _drained: bool = field(default=False, init=False)
    _submitted: set[str] = field(factory=set, init=False)
    _cancelled: set[str] = field(factory=set, init=False)
    """Jobs whose line `cancel` the manager has read."""
    _unknown: str = field(default="", init=False)
    bound: str = field(default="", init=False)
    """The address that the testee binds; empty for a worker."""
    upper: str = field(default="", init=False)
    """The address that a device binds for managers that dial in."""
    _dialled: int = field(default=0, init=False)
    _began: float = field(init=False)
    _watched: float = field(init=False)
    """The time since which the delays of the kit count."""
    _returned: float = field(default=0.0, init=False)
    """The time at which the kit last looked for messages of the testee; 0 before the first look."""
    _stays: list[Stay] = field(factory=list, init=False)
    """When the testee was on which core."""
    _began_to_send: bool = field(default=False, init=False)
    """Whether any message of the testee has arrived."""
    _late: str | None = field(default=None, init=False)
    """How busy the machine was until the testee ended; None while it runs."""
    _absent: float = field(default=0.0, init=False)
    """The longest time in seconds for which the kit did not look for messages."""
    _host: str = field(factory=lambda: _own_host(next(_plays)), init=False)
    complaint: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.unit = self.live.own_unit
        if self.live.command is None:
            # A running testee may remember peers with these names for its `max_silence`.
            self.live.over.wait(_EXPIRED * self.unit / 1000)
            self.epoch = time.time_ns() // 1_000_000
        self._context = zmq.Context()
        try:
            self._start()
        except BaseException:
            self._close_sockets()
            raise
        self._began = time.monotonic()
        self._watched = WATCH.begin()
        PROBES.begin()

    def _start(self) -> None:
        live = self.live
        addresses = []
        any_port = f"tcp://{self._host}:*"
        for _ in range(self.terms.endpoints):
            router = self._socket(zmq.ROUTER)
            router.router_mandatory = True
            router.bind(live.endpoint if live.endpoint and live.testee == "worker" else any_port)
            addresses.append(_address(router))
            self._routers.append(router)
            self._poller.register(router, zmq.POLLIN)
        words = {"unit": str(self.unit), "slots": str(self.terms.slots)}
        if live.testee == "worker":
            words["endpoint"] = ",".join(addresses)
        else:
            self.bound = live.endpoint or self._free_port()
            words["endpoint"] = words["bind"] = self.bound
            words["connect"] = ",".join(addresses)
            words["managers"] = self.upper = self._free_port()
        if live.command is not None:
            self._process = PeerProcess(fill(live.command, words))
            self._poller.register(self._process.output, zmq.POLLIN)

    def _socket(self, kind: int) -> zmq.Socket[Any]:
        zmq_socket: zmq.Socket[Any] = self._context.socket(kind)
        zmq_socket.linger = 0
        zmq_socket.sndhwm = zmq_socket.rcvhwm = 100_000
        return zmq_socket

    def _free_port(self) -> str:
        """Find a port that was free a moment ago."""
        # A plain socket, because ZeroMQ's sockets still listen for a moment after they are closed.
        with socket.create_server((self._host, 0)) as probe:
            return f"tcp://{self._host}:{probe.getsockname()[1]}"

    # -- time

    @property
    def grace(self) -> float:
        return min(max(0.25, self.live.grace * 1000 / self.unit), _LONGEST_GRACE)

    @property
    def patience(self) -> float:
        return _START * 1000 / self.unit

    def stalled(self, evident: bool) -> str:
        if self._late is not None:
            return self._late
        maximum = (_STALL if evident else self.grace * _HOP) * self.unit / 1000
        delays = {
            "the kit": max(self._absent, WATCH.longest(self._watched)),
            "a probe on the core of the testee": PROBES.longest(self._stays, self._watched),
        }
        who = max(delays, key=lambda name: delays[name])
        if delays[who] <= maximum:
            return self._starved()
        return (
            f"this machine was busy: {who} could not run for {delays[who]:.2f} s; "
            f"expected at most {maximum:.2f} s"
        )

    def _starved(self) -> str:
        """Text about a testee that has not started because it got no core; "" for none.

        A start takes much more work at a time than the probes do, so they need not notice.
        """
        if self._began_to_send or self._process is None:
            return ""
        waited = waited_for_core(self._process.number)
        passed = time.monotonic() - self._began
        if waited is None or waited <= _STARVED * passed:
            return ""
        return (
            f"this machine was busy: the testee waited {waited:.1f} of its {passed:.1f} s for a "
            f"core, and has sent nothing; expected at most {_STARVED * passed:.1f} s"
        )

    def _note_core(self) -> None:
        """Note the core of the testee, at most once in a step of the probes."""
        now = time.monotonic()
        if self._process is None or (self._stays and now < self._stays[-1][0] + _LOOK_AT_CORE):
            return
        core = core_of(self._process.number)
        if core is not None:
            self._stays.append((now, core))

    def now(self) -> float:
        return (time.monotonic() - self._began) * 1000 / self.unit

    # -- messages

    def start(self) -> None:
        """Do nothing: the testee has run since this wire was made."""

    def dial(self, *, upper: bool = False) -> Connection:
        self._dialled += 1
        dealer = self._socket(zmq.DEALER)
        # A testee that has just been started may not listen yet.
        dealer.reconnect_ivl, dealer.reconnect_ivl_max = 5, 50
        dealer.connect(self.upper if upper else self.bound)
        self._poller.register(dealer, zmq.POLLIN)
        connection = Connection("upper" if upper else "dialled", self._dialled)
        self._dealers[connection] = dealer
        return connection

    def hang_up(self, connection: Connection) -> None:
        dealer = self._dealers.pop(connection, None)
        if dealer is not None:
            self._poller.unregister(dealer)
            dealer.close()

    def send(self, connection: Connection, frames: Sequence[Frame]) -> None:
        try:
            if connection.side == "taken":
                router = self._routers[connection.endpoint]
                router.send_multipart([connection.name, *frames], zmq.DONTWAIT)
            elif connection in self._dealers:
                self._dealers[connection].send_multipart(frames, zmq.DONTWAIT)
        except zmq.ZMQError:
            pass  # the testee has ended; the missing answer is reported later

    def receive(self, until: float) -> tuple[Connection, Sequence[Frame]] | None:
        while not self._arrived:
            reported = self._wait(until)
            if not self._arrived and (reported or self.now() >= until):
                return None  # an end or a status arrived, perhaps before ``until``
        return self._arrived.popleft()

    def _wait(self, until: float) -> bool:
        """Wait for messages or lines; True if the manager reported something to the submitter."""
        if self.live.over.is_set():
            raise KitStopped
        left = (until - self.now()) * self.unit
        if self._returned:
            self._absent = max(self._absent, time.monotonic() - self._returned)
        self._note_core()
        events = dict(self._poller.poll(max(0, min(ceil(left), _LOOK))))
        self._returned = time.monotonic()
        self._collect(events)
        if self._process is None or self._process.output not in events:
            return False
        if self._receive():
            return True
        if self._process.ended:
            self._poller.unregister(self._process.output)
            if not self.may_end and not self._drained:
                raise Broken(
                    "WMP-10.1",
                    f"the testee ended {self._process.how} during the case; expected it to run "
                    "until the end",
                )
            return True
        return False

    def _collect(self, events: dict[Any, int]) -> None:
        for index, router in enumerate(self._routers):
            if router in events:
                self._began_to_send = True
                name, *frames = router.recv_multipart()
                self._arrived.append((Connection("taken", index, name), frames))
        for connection, dealer in self._dealers.items():
            if dealer in events:
                self._began_to_send = True
                self._arrived.append((connection, dealer.recv_multipart()))

    # -- control

    def submit(self, job: SubmittedJob) -> None:
        times = {
            "timeout": job.timeout,
            "expires": job.expires,
            "run_limit": job.run_limit,
            "delay": job.delay,
            "wait": job.wait,
        }
        options = {
            **{key: None if t is None else round(t * self.unit) for key, t in times.items()},
            "retries": job.retries,
            "max_worker_losses": job.max_worker_losses,
            "priority": job.priority or None,
        }
        words = "".join(f" {key}={value}" for key, value in options.items() if value is not None)
        self._write_line(f"submit {job.name} {job.role} {job.payload.hex() or '-'}{words}")
        self._wait_for_line(self._submitted, job.name)
        self._check_known()

    def cancel(self, name: str) -> None:
        self._write_line(f"cancel {name}")
        self._wait_for_line(self._cancelled, name)

    def _wait_for_line(self, reported: set[str], name: str) -> None:
        """Wait until the manager has read a line: the next message must not arrive before it."""
        until = self.now() + self.grace
        while name not in reported and not self._unknown and self.now() < until:
            self._wait(until)

    def ends(self) -> list[JobEnd]:
        self._receive()
        self._check_known()
        ends, self._ends = self._ends, []
        return ends

    def _check_known(self) -> None:
        if self._unknown:
            raise Unimplemented(f"the manager answered 'unknown' for the option {self._unknown}")

    def _write_line(self, line: str) -> None:
        if self._process is None:
            raise Unimplemented(
                "the kit submits jobs over the stdin of --command, which is missing"
            )
        self._process.write_line(line)

    def _receive(self) -> bool:
        """Read the lines of the manager.

        Return True if one of them is a report for the submitter.
        """
        if self._process is None:
            return False
        received = False
        for line in self._process.lines():
            match line.split():
                case ["submitted", name]:
                    self._submitted.add(name)
                case ["cancelling", name]:
                    self._cancelled.add(name)
                case ["ended", name, outcome, data] if outcome in _OUTCOMES:
                    self._cancelled.add(name)  # the line `cancel` has no effect any more
                    self._ends.append(JobEnd(name, outcome, _bytes(data)))
                    received = True
                case ["status", name, fraction, data]:
                    status = f"{fraction} {_bytes(data).decode(errors='replace')}"
                    self._ends.append(JobEnd(name, "status", status.encode()))
                    received = True
                case ["unknown", name, option]:
                    self._unknown = f"{option} of {name}"
                    received = True
        return received

    def restart(self) -> bool:
        return False  # the command of a testee names no store that would outlive its process

    def stop(self) -> bool:
        # A process that continues reads its clock before its sockets, and may then give up the
        # manager of the kit as silent. It would owe the manager no question.
        return False

    def resume(self) -> None:
        pass

    def drain(self) -> None:
        self._drained = True
        if self._process is None:
            raise Unimplemented("the kit ends only a testee that --command started")
        self._process.terminate()

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.ended

    @property
    def stderr(self) -> str:
        """The end of the testee's stderr."""
        return self._stderr

    _stderr: str = field(default="", init=False)

    def close(self) -> str:
        try:
            if self._process is not None:
                patience = 0.5 if self.live.over.is_set() else 5.0 + 5.0 * self.unit / 1000
                self.complaint = self._process.close(patience, had_to_end=self.may_end)
                self._stderr = self._process.stderr
        finally:
            self._late = self.stalled(True)
            self._close_sockets()
            WATCH.end()
            PROBES.end()
        return self.complaint

    def _close_sockets(self) -> None:
        for zmq_socket in (*self._routers, *self._dealers.values()):
            zmq_socket.close()
        self._context.term()


def _address(bound: zmq.Socket[Any]) -> str:
    address = bound.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(address, bytes)
    return address.decode().rstrip("\0")


def _bytes(data: str) -> bytes:
    try:
        return b"" if data == "-" else bytes.fromhex(data)
    except ValueError:
        return data.encode()
