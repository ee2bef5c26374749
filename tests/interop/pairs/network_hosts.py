"""Hosts in network namespaces, with a link between each two that traffic control cuts.

Each link is a pair of virtual devices with a network of its own. A cut is the queueing discipline
``blackhole`` at one end, which drops all that is sent from this end, or at both ends.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from types import TracebackType
from typing import Self

from tests.interop.programs.programs import Program


def run(*words: str) -> None:
    """Run a command; raise its error text."""
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise OSError(f"{' '.join(words)}: {ended.stderr.strip()}")


@cache
def missing() -> str:
    """Return what this machine lacks for namespaces and cuts; empty if it has all."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the program {tool} is not installed (iproute2)"
    try:
        with Hosts("xy") as hosts:
            hosts.cut("x", "y")
            hosts.mend()
    except OSError as error:
        return f"this machine makes no namespaces with links: {error}"
    return ""


class Hosts:
    """Hosts with names of one letter, each linked with each other.

    Args:
        names: The names of the hosts.
    """

    _numbers = itertools.count(1)

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = f"wmp{os.getpid()}n{next(self._numbers)}"
        self._names = names
        self._links = {
            frozenset(pair): number
            for number, pair in enumerate(itertools.combinations(sorted(names), 2))
        }
        self._cut: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                run("ip", "netns", "add", self._space(name))
                self._in(name, "ip", "link", "set", "lo", "up")
            for first, other in map(sorted, self._links):
                # The names of devices have at most 15 letters.
                run(
                    *("ip", "link", "add", f"to-{other}", "netns", self._space(first)),
                    *("type", "veth", "peer", "name", f"to-{first}", "netns", self._space(other)),
                )
                for name, peer in ((first, other), (other, first)):
                    address = f"{self.address(name, peer)}/30"
                    self._in(name, "ip", "address", "add", address, "dev", f"to-{peer}")
                    self._in(name, "ip", "link", "set", f"to-{peer}", "up")
        except OSError:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in self._names:
            subprocess.run(
                ("ip", "netns", "delete", self._space(name)), capture_output=True, check=False
            )

    def _space(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _in(self, name: str, *words: str) -> None:
        run("ip", "netns", "exec", self._space(name), *words)

    def address(self, name: str, peer: str) -> str:
        """Return the address of a host on its link to a peer."""
        link = self._links[frozenset((name, peer))]
        return f"10.77.{link}.{1 if name < peer else 2}"

    def start(self, name: str, *words: str) -> Program:
        """Start a program on a host."""
        return Program("ip", "netns", "exec", self._space(name), sys.executable, *words)

    def cut(self, first: str, other: str, *, both: bool = True) -> None:
        """Drop all that goes from one host to the other, and with ``both`` all that comes back."""
        for name, peer in ((first, other), (other, first)) if both else ((first, other),):
            if (name, peer) not in self._cut:
                self._in(name, "tc", "qdisc", "add", "dev", f"to-{peer}", "root", "blackhole")
                self._cut.add((name, peer))

    def mend(self) -> None:
        """End all cuts."""
        for name, peer in self._cut:
            self._in(name, "tc", "qdisc", "delete", "dev", f"to-{peer}", "root")
        self._cut.clear()
