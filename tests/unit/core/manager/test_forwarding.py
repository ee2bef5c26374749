"""Forwarding managers: jobs of other managers at a manager machine (WMP section 19)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import errors, make, resolved, submit
from wmp.actions import Answer, Drop, Note, Notify
from wmp.events import FIRST_FORWARDED, Drained, Forwarded, Retracted, Ticked, Undelivered
from wmp.message import Columns, Command, Field, ForwardedKind, Limits, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

A = (b"a", 3)
"""The owner of the forwarded jobs."""
SLOTS = (("slots", 1),)


def forward(manager, *payloads, now=0.0, first=0, attempt=1, **columns):
    """Forward jobs of A, with the numbers 17, 18, … there."""
    count = len(payloads)
    kind = ForwardedKind(
        columns.pop("role", "default"),
        columns.pop("needs", SLOTS),
        owner=columns.pop("owner", A),
        passed=columns.pop("passed", ()),
    )
    event = Forwarded(
        ids=range(FIRST_FORWARDED + first, FIRST_FORWARDED + first + count),
        kind=kind,
        numbers=range(17, 17 + count),
        attempts=[attempt] * count,
        payloads=payloads,
        **columns,
    )
    return manager.handle(event, now)


def answers(actions):
    """Return (number, outcome, payload, text) of each answer, numbered from 0."""
    return [
        (id - FIRST_FORWARDED, outcome, bytes(payload), text)
        for action in actions
        if isinstance(action, Answer)
        for id, outcome, payload, text in zip(
            action.ids, action.outcomes, action.payloads, action.texts, strict=True
        )
    ]


def take(manager, worker, *payloads, **columns):
    """Forward jobs, let the worker take them; return the TAKE."""
    worker.ready(len(payloads))
    forward(manager, *payloads, **columns)
    (message,) = sent(worker.give(len(payloads)), Command.TAKE)
    return message


@pytest.fixture
def manager():
    return make()


@pytest.fixture
def worker(manager):
    return ScriptedWorker(manager)


@pytest.mark.rule("WMP-19.3", "WMP-4.7")
def test_take_keeps_owner_number_and_attempt_and_names_the_way(manager, worker):
    message = take(
        manager, worker, b"x", b"y", attempt=4, passed=(b"g",), failed=[2, None], begun=[1, None],
        limits=[5.0, None], deadlines=[30.0, None], begin_by=[20.0, None],
    )  # fmt: skip

    assert message.fields[Field.MANAGER] == A
    assert message.fields[Field.PASSED] == (b"g", b"m")
    assert Field.KEEP not in message.fields
    columns = message.columns
    assert (list(columns.ids), list(columns.attempts)) == ([17, 18], [4, 4])
    assert list(columns.payloads) == [b"x", b"y"]
    assert list(columns.left_ms) == [30_000, None]
    assert list(columns.expires_ms) == [20_000, None]
    assert list(columns.limits_ms) == [5000, None]
    assert list(columns.failed) == [2, None]
    assert list(columns.begun) == [1, None]
    manager.check_invariants()


@pytest.mark.rule("WMP-19.3")
def test_a_payload_with_a_checksum_has_one_below(manager, worker):
    worker.ready(1)
    kind = ForwardedKind("default", SLOTS, "", True, A)
    manager.handle(Forwarded([FIRST_FORWARDED], kind, [17], [1], [b"123456789"]), 0.0)

    (message,) = sent(worker.give(1), Command.TAKE)

    assert list(message.columns.checksums) == [3421780262]


@pytest.mark.rule("WMP-19.3")
def test_jobs_of_different_owners_share_no_take(manager, worker):
    worker.ready(4)
    forward(manager, b"x")
    forward(manager, b"y", first=1, owner=(b"b", 1))
    submit(manager, b"own")

    takes = sent(worker.give(4), Command.TAKE)

    owners = {message.fields[Field.MANAGER]: message.fields.get(Field.PASSED) for message in takes}
    assert owners == {(b"m", 7): None, A: (b"m",), (b"b", 1): (b"m",)}
    assert all(len(message.columns.ids) == 1 for message in takes)


@pytest.mark.rule("WMP-19.4")
@pytest.mark.parametrize("outcome", Outcome)
def test_done_below_is_done_above(manager, worker, outcome):
    take(manager, worker, b"x")

    actions = worker.done([17], [b"end"], outcome=outcome, texts=["text"], waits_ms=[250])

    assert answers(actions) == [(0, outcome, b"end", "text")]
    (answer,) = [action for action in actions if isinstance(action, Answer)]
    assert list(answer.waits) == [250]
    assert not resolved(actions)
    assert manager.statistics().queued == manager.statistics().leased == 0
    manager.check_invariants()


@pytest.mark.rule("WMP-19.4")
def test_a_result_keeps_its_codec(manager, worker):
    take(manager, worker, b"x")

    (answer,) = [a for a in worker.done([17], codec="json") if isinstance(a, Answer)]

    assert answer.codec == "json"


@pytest.mark.rule("WMP-19.4")
def test_a_lost_lease_is_answered_lost_and_granted_to_nobody(manager, worker):
    take(manager, worker, b"x")
    other = ScriptedWorker(manager, identity=b"w2", link=b"link-2")
    other.ready(1)

    actions = worker.bye()

    ((number, outcome, payload, text),) = answers(actions)
    assert (number, outcome, text) == (0, Outcome.LOST, None)
    assert b"at worker w1 of a forwarding manager: the worker sent BYE" in payload
    (note,) = [action for action in actions if isinstance(action, Note)]
    assert (note.owner, list(note.ids), list(note.attempts)) == (A, [17], [1])
    assert not sent(other.give(1, hold=0), Command.TAKE)
    manager.check_invariants()


@pytest.mark.rule("WMP-19.4")
def test_a_lease_whose_take_never_left_is_handed_back_as_not_begun(manager, worker):
    message = take(manager, worker, b"x")
    manager.handle(Undelivered(worker.link, message), 0.0)

    assert answers(manager.handle(Ticked(), 6.0)) == [(0, Outcome.CANCELLED, b"", None)]


@pytest.mark.rule("WMP-19.4", "WMP-6.35")
def test_a_deadline_below_is_answered_with_a_text_if_the_job_may_have_begun(manager, worker):
    take(manager, worker, b"x", deadlines=[2.0])

    actions = manager.handle(Ticked(), 2.0)

    ((_, outcome, _, text),) = answers(actions)
    assert outcome is Outcome.CANCELLED
    assert text
    (cancel,) = sent(actions, Command.CANCEL)
    assert (cancel.fields[Field.MANAGER], list(cancel.columns.ids)) == (A, [17])


@pytest.mark.rule("WMP-19.4")
def test_a_deadline_before_the_lease_is_answered_without_a_text(manager, worker):
    worker.ready(0)
    forward(manager, b"x", deadlines=[2.0])

    assert answers(manager.handle(Ticked(), 2.0)) == [(0, Outcome.CANCELLED, b"", None)]
    manager.check_invariants()


@pytest.mark.rule("WMP-19.5")
@pytest.mark.parametrize("unstarted", [True, False])
def test_cancel_reaches_the_worker(manager, worker, unstarted):
    take(manager, worker, b"x", attempt=3)

    actions = manager.handle(Retracted([FIRST_FORWARDED], unstarted=unstarted), 0.0)

    (message,) = sent(actions, Command.CANCEL)
    assert message.fields[Field.MANAGER] == A
    assert message.fields.get(Field.UNSTARTED, False) is unstarted
    assert (list(message.columns.ids), list(message.columns.attempts)) == ([17], [3])
    assert not answers(actions)


@pytest.mark.rule("WMP-19.5")
def test_a_cancel_after_a_recall_reaches_the_worker_too(manager, worker):
    take(manager, worker, b"x")
    manager.handle(Retracted([FIRST_FORWARDED], unstarted=True), 0.0)

    actions = manager.handle(Retracted([FIRST_FORWARDED]), 0.0)

    (message,) = sent(actions, Command.CANCEL)
    assert Field.UNSTARTED not in message.fields


@pytest.mark.rule("WMP-19.5")
def test_a_job_that_no_worker_holds_is_cancelled_at_once(manager, worker):
    worker.ready(0)
    forward(manager, b"x")

    actions = manager.handle(Retracted([FIRST_FORWARDED]), 0.0)

    assert answers(actions) == [(0, Outcome.CANCELLED, b"", None)]
    manager.check_invariants()


@pytest.mark.rule("WMP-19.6")
def test_a_higher_attempt_at_the_same_worker_ends_the_lower_one_without_an_answer(manager, worker):
    take(manager, worker, b"x", attempt=1)
    manager.handle(Retracted([FIRST_FORWARDED]), 0.0)
    worker.ready(1)
    forward(manager, b"x", attempt=2, first=1)

    actions = worker.give(1)

    (message,) = sent(actions, Command.TAKE)
    assert list(message.columns.attempts) == [2]
    ((number, outcome, _, text),) = answers(actions)
    assert (number, outcome, bool(text)) == (0, Outcome.CANCELLED, True)
    manager.check_invariants()
    assert not answers(worker.done([17], attempt=1)), "the lower attempt ends no job"
    assert answers(worker.done([17], attempt=2)) == [(1, Outcome.OK, b"result", None)]
    manager.check_invariants()


@pytest.mark.rule("WMP-19.6")
def test_two_attempts_at_different_workers_end_apart(manager, worker):
    take(manager, worker, b"x", attempt=1)
    manager.handle(Retracted([FIRST_FORWARDED]), 0.0)
    other = ScriptedWorker(manager, identity=b"w2", link=b"link-2")
    take(manager, other, b"x", attempt=2, first=1)

    first = worker.done([17], attempt=1, outcome=Outcome.CANCELLED)
    second = other.done([17], attempt=2)

    assert [number for number, *_ in answers(first)] == [0]
    assert answers(second) == [(1, Outcome.OK, b"result", None)]
    manager.check_invariants()


@pytest.mark.rule("WMP-19.7")
def test_progress_is_passed_on(manager, worker):
    take(manager, worker, b"x")
    columns = Columns([17], [1], fractions=[0.5], texts=["half"])

    actions = worker.send(worker.numbered(Command.STATUS, columns))

    assert [a for a in actions if isinstance(a, Notify)] == [Notify(FIRST_FORWARDED, 0.5, "half")]


@pytest.mark.rule("WMP-19.8")
@pytest.mark.parametrize(
    "way",
    [
        {"passed": (b"g", b"m")},
        {"owner": (b"m", 6)},
        {"passed": tuple(bytes([65 + n]) for n in range(Limits.HOPS))},
    ],
    ids=["passed", "own", "too far"],
)
def test_a_job_in_a_circle_or_too_far_is_refused(manager, worker, way):
    worker.ready(1)

    ((number, outcome, reason, _),) = answers(forward(manager, b"x", **way))

    assert (number, outcome) == (0, Outcome.REFUSED)
    assert b"forward" in reason
    assert manager.statistics().queued == 0


@pytest.mark.rule("WMP-19.9")
def test_a_worker_that_offers_the_managers_own_workers_gets_no_job(manager, worker):
    actions = worker.ready(4, forwards=(b"f", b"m"))
    assert [a.reason for a in actions if isinstance(a, Drop)] == ["circle"]

    submit(manager, b"own")
    assert not sent(worker.ready(4, forwards=(b"f",)), Command.WAKE, Command.TAKE)
    actions = worker.give(1, hold=5000)

    assert len(sent(actions, Command.NO)) == 1
    assert not sent(actions, Command.TAKE)
    assert manager.offer().resources == {"slots": 0}
    manager.check_invariants()


@pytest.mark.rule("WMP-19.10")
@pytest.mark.parametrize("kind", [{"role": "cook"}, {"needs": (("gpu", 1), ("slots", 1))}])
def test_a_job_that_no_worker_can_do_is_refused(manager, worker, kind):
    worker.ready(1)

    ((_, outcome, reason, _),) = answers(forward(manager, b"x", **kind))

    assert outcome is Outcome.REFUSED
    assert reason.startswith(b"no worker of this forwarding manager does role")


@pytest.mark.rule("WMP-19.10")
def test_only_jobs_that_no_worker_has_are_withdrawn_because_they_wait(manager, worker):
    take(manager, worker, b"x")
    forward(manager, b"y", first=1)

    ids = [FIRST_FORWARDED, FIRST_FORWARDED + 1]
    actions = manager.handle(Retracted(ids, unstarted=True, waiting=True), 0.0)

    assert answers(actions) == [(1, Outcome.CANCELLED, b"", None)]
    assert not sent(actions, Command.CANCEL)


@pytest.mark.rule("WMP-19.11")
def test_a_late_result_of_a_forwarded_job_is_counted_and_no_error(manager, worker):
    take(manager, worker, b"x")
    worker.done([17])

    actions = worker.done([17])

    assert not errors(actions)
    assert [a.reason for a in actions if isinstance(a, Drop)] == ["stale result"]


@pytest.mark.rule("WMP-19.11", "WMP-10.5")
def test_a_result_of_a_job_of_a_manager_that_was_never_forwarded_is_an_error(manager, worker):
    worker.ping()

    assert errors(worker.done([17], manager=(b"z", 1))) == ["unknown"]


@pytest.mark.rule("WMP-19.12")
def test_own_jobs_stand_before_forwarded_jobs(manager, worker):
    worker.ready(0)
    forward(manager, b"first", b"second")
    submit(manager, b"own")

    takes = [sent(worker.give(1), Command.TAKE)[0] for _ in range(3)]

    assert [bytes(message.columns.payloads[0]) for message in takes] == [
        b"own",
        b"first",
        b"second",
    ]


@pytest.mark.rule("WMP-19.2")
def test_the_offer_is_the_sum_of_the_workers_without_the_own_jobs(manager, worker):
    other = ScriptedWorker(manager, identity=b"w2", link=b"link-2")
    worker.ready(2, resources={"slots": 2, "gpu": 1}, roles=("default",))
    other.ready(4, resources={"slots": 4}, roles=("cook", "default"), forwards=(b"g",))

    offer = manager.offer()
    assert offer.roles == ("cook", "default")
    assert offer.resources == {"gpu": 1, "slots": 6}
    assert offer.forwards == (b"m", b"g")

    submit(manager, b"own")
    forward(manager, b"x")
    assert manager.offer().resources == {"gpu": 1, "slots": 5}
    other.bye()
    assert manager.offer().resources == {"gpu": 1, "slots": 1}


@pytest.mark.rule("WMP-19.13")
def test_a_draining_manager_offers_nothing_and_hands_forwarded_jobs_back(manager, worker):
    worker.ready(2)
    submit(manager, b"own")  # keeps the manager from its end
    manager.handle(Drained(), 0.0)

    assert manager.offer().resources == {"slots": 0}
    assert answers(forward(manager, b"x")) == [(0, Outcome.CANCELLED, b"", None)]
