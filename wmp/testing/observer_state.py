"""The outline of what observers know: states in which an invariant may still break differ."""

from __future__ import annotations

from wmp.testing.invariants import History
from wmp.testing.observer import Observer
from wmp.testing.state.canonical import DOWN, UP, Outline, Pen

__all__ = ["outline_records"]


def outline_records(history: History, witness: Observer) -> Outline:
    """Draw a history and the witness that tells it."""
    pen = Pen()
    contacts = []
    for me, known in sorted(witness._contacts.items()):
        for identity, contact in sorted(known.items()):
            peer = (identity, contact.epoch)
            pen.times.append(contact.heard)
            pen.number(("session", me), contact.session)
            pen.place((DOWN, me, peer, contact.session), contact.number)
            pen.place((UP, me, peer, contact.session), contact.received)
            leases = []
            for id, (attempt, number) in contact.leases.items():
                pen.place((DOWN, me, peer, contact.session), number)
                leases.append((id, attempt, contact.sends.get(number)))
            contacts.append((me, peer, contact.session > 0, tuple(leases)))
    for ids in history.jobs.values():
        pen.ahead += [j.deadline for j in ids.values() if j.deadline is not None]
    jobs = [
        (
            owner,
            owner in history.open,
            id,
            job.attempt,
            job.holder,
            job.over,
            job.spent,
            job.asked,
            job.deadline is not None,
            tuple(job.begun.items()),
            job.end and job.end.value,
        )
        for owner, ids in history.jobs.items()
        for id, job in ids.items()
    ]
    answered = sorted(history._answered.items())
    return pen.outline((tuple(contacts), tuple(jobs), tuple(answered)))
