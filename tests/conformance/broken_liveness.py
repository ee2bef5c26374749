"""Broken workers, each with one fault of liveness or of identity (sections 9 and 15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from tests.ablation import manager_side, worker_side
from tests.conformance.broken_peers import Bend, Link, bent, built, changed, columned, switched
from tests.conformance.broken_workers import worker
from wmp.message import Command as C
from wmp.message import ErrorCode, Field, Message

W = "worker"


built(W, "WMP-9.1", "pings every four units", lambda terms: worker(terms, ping=4.0))


@bent(W, "WMP-9.1")
class PingsOnlyInSilence(Bend):
    def __attrs_post_init__(self) -> None:
        self.last: dict[Any, float] = {}

    def says(self, link: Link, message: Message) -> Message | None:
        before = self.last.get(message.to, -9.0)
        if message.command is C.PING and message.to and self.now - before < 0.99:
            return None
        self.last[message.to] = self.now
        return message


switched(W, "WMP-9.4", worker_side.silent_link, "never replaces a silent link")


@bent(W, "WMP-9.5")
class SleepsWhileItWorks(Bend):
    def sleeps(self, testee: Any) -> bool:
        return bool(testee._lanes)


switched(W, "WMP-9.22", worker_side.late_start, "asks nothing after a pause")
switched(W, "WMP-9.22", worker_side.early_answer, "begins jobs before its question is answered")
switched(W, "WMP-9.22", worker_side.any_answer, "takes any PONG for the answer to its question")
switched(W, "WMP-9.6", worker_side.older_epoch, "listens to an older epoch")
switched(W, "WMP-9.7", worker_side.newer_epoch, "takes a newer epoch for the older")


@bent(W, "WMP-9.8")
class CallsAFailedClaimMisrouted(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.fields.get(Field.CODE) == ErrorCode.SUPERSEDED:
            return changed(message, code=ErrorCode.MISROUTED)
        return message


switched(W, "WMP-15.1", manager_side.any_claim, "believes every route")
switched(W, "WMP-15.2", manager_side.restart_of_the_holder, "asks a process that has ended")
switched(W, "WMP-15.3", manager_side.claims, "believes the newest epoch")
switched(W, "WMP-15.4", manager_side.answers, "answers no challenge")
switched(W, "WMP-15.5", manager_side.refusal, "reports no failed claim")
switched(W, "WMP-15.5", manager_side.failed_claims, "reads no answer to a challenge")
switched(W, "WMP-15.6", manager_side.admission, "keeps an identity for a dead process")
switched(W, "WMP-15.8", manager_side.route_of_reports, "believes reports of strangers")
switched(W, "WMP-15.9", worker_side.one_refusal, "stops for one manager of two")
switched(W, "WMP-15.9", worker_side.every_refusal, "goes on though all managers refuse it")
switched(W, "WMP-15.11", worker_side.session_of_a_stranger, "keeps the session of a stranger")


@bent(W, "WMP-9.9")
class SaysThatItIsIdleWhileItWorks(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.PING and message.columns is not None:
            return changed(evolve(message, columns=None), idle=True)
        return message


@bent(W, "WMP-9.9")
class IsIdleForOtherOwners(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.PING and message.to and message.columns is None:
            return changed(message, idle=True)
        return message


@bent(W, "WMP-9.9")
class ListsOtherJobsThanItHas(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.PING and message.columns is not None:
            return columned(message, ids=[id + 1 for id in message.columns.ids])
        return message


@bent(W, "WMP-9.10")
class LeavesWithoutAWord(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        return None if message.command is C.BYE else message


@bent(W, "WMP-9.10")
class LeavesWithItsJobs(Bend):
    def __attrs_post_init__(self) -> None:
        self.leaving = False

    def says(self, link: Link, message: Message) -> Message | Sequence[Message] | None:
        if message.command is C.READY and message.fields[Field.CREDIT] == 0 and not message.to:
            self.leaving = True
        return None if self.leaving and message.command is C.DONE else message


@bent(W, "WMP-9.12")
class TakesUnreachableForTheEnd(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        if message.fields.get(Field.CODE) == ErrorCode.UNREACHABLE:
            return changed(message, code=ErrorCode.SUPERSEDED)
        return message


@bent(W, "WMP-9.21")
class WaitsForManagersThatAreElsewhere(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        return None if message.fields.get(Field.CODE) == ErrorCode.MISROUTED else message


built(W, "WMP-9.15", "heeds a tiny max_silence", lambda terms: worker(terms, min_silence=0.03))
switched(W, "WMP-9.14", worker_side.expiry, "never gives a manager up")
