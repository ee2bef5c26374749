"""The members of a fleet in virtual time, and the task slots by Spark's settings: without Spark."""

from __future__ import annotations

import pytest

from wmp.errors import ConfigError
from wmp.spark.fleet.table import FAILURES, LOST_AFTER, Beat, FleetTable, MemberState, Order, Slots
from wmp.spark.fleet.task_slots import check_spare, max_slots

ADMISSION = 20.0


def begun(*numbers, spare=1, of=None):
    """Return a table whose members ``numbers`` run at the time 0."""
    table = FleetTable(ADMISSION, spare)
    for number in table.scale(len(numbers) if of is None else of, 0.0):
        table.submitted(number)
    for number in numbers:
        assert table.reported(beat(number), 0.0) is Order.SERVE
    return table


def beat(number, life=1, process="p", managers=0):
    return Beat(member=number, life=life, process=process, managers=managers)


def states(table):
    return [entry.state.value for entry in table]


@pytest.mark.rule("FLEET-2.4")
def test_a_second_process_waits_until_the_first_is_silent():
    table = begun(0)

    assert table.reported(beat(0, process="q"), LOST_AFTER - 0.1) is Order.WAIT
    assert table.reported(beat(0, process="q"), LOST_AFTER) is Order.SERVE
    assert table.reported(beat(0, process="p"), LOST_AFTER + 0.1) is Order.WAIT


@pytest.mark.rule("FLEET-2.4")
def test_a_process_of_an_earlier_life_drains():
    table = begun(0)
    table.ended(0, "the executor was lost")
    table.submitted(0)

    assert table.reported(beat(0, life=1), 1.0) is Order.DRAIN
    assert table.reported(beat(7, life=1), 1.0) is Order.DRAIN
    assert table.reported(beat(0, life=2, process="q"), 1.0) is Order.SERVE


@pytest.mark.rule("FLEET-3.2")
def test_members_that_have_not_begun_are_retired_first_and_then_the_youngest():
    table = begun(0, 2, 3, of=4)

    assert table.scale(2, 1.0) == []
    assert [entry.number for entry in table if entry.retired] == [1, 3]
    assert table.unstarted() == [1]
    assert table.reported(beat(3), 1.0) is Order.DRAIN
    assert not table.lives_on(3)
    assert table.scale(3, 2.0) == [4]


@pytest.mark.rule("FLEET-3.3")
def test_at_the_end_every_member_is_ordered_to_drain():
    table = begun(0, of=2)

    table.stop()

    assert table.reported(beat(0), 1.0) is Order.DRAIN
    assert table.unstarted() == [1]
    assert states(table) == ["draining", "waiting"]
    assert not table.lives_on(0)
    table.ended(0, None)
    assert table.counts()[MemberState.ENDED] == 1


@pytest.mark.rule("FLEET-3.5")
def test_a_member_that_always_fails_waits_longer_and_then_ends_the_fleet():
    table = FleetTable(ADMISSION)
    table.scale(1, 0.0)
    waits = []
    for life in range(1, FAILURES):
        assert table.submitted(0) == life
        waits.append(table.ended(0, "no module work"))
    table.submitted(0)

    with pytest.raises(ConfigError, match=r"failed 5 times in a row.*no module work"):
        table.ended(0, "no module work")
    assert waits == [0.25, 0.5, 1.0, 2.0]


@pytest.mark.rule("FLEET-3.5")
def test_a_life_with_a_manager_begins_the_count_of_failures_anew():
    table = FleetTable(ADMISSION)
    table.scale(1, 0.0)
    for life in range(1, 3 * FAILURES):
        table.submitted(0)
        table.reported(beat(0, life=life, process=str(life), managers=1), life)
        assert table.ended(0, "killed") == 0.25


@pytest.mark.rule("FLEET-4.3")
@pytest.mark.parametrize(
    ("slots", "cause"),
    [(Slots(running=2, waiting=0), "2 of their tasks run"), (None, "or no executor runs")],
)
def test_no_member_for_the_time_of_admission_is_an_error(slots, cause):
    table = begun(of=2)

    table.check(slots, ADMISSION - 0.1)
    with pytest.raises(ConfigError, match=rf"any of the 2 workers .* for 20 s: .*{cause}"):
        table.check(slots, ADMISSION)


@pytest.mark.rule("FLEET-4.3")
def test_the_time_of_admission_begins_with_the_last_running_member():
    table = begun(0)
    table.check(None, 1.0)
    table.ended(0, "killed")
    table.submitted(0)

    table.check(None, ADMISSION + 0.9)
    with pytest.raises(ConfigError):
        table.check(None, ADMISSION + 1.0)


@pytest.mark.rule("FLEET-4.4")
def test_a_fleet_that_alone_holds_slots_while_others_wait_is_an_error():
    table = begun(0, 1)

    def look(now, **others):
        for number in (0, 1):
            table.reported(beat(number), now)
        table.check(Slots(**others), now)

    look(0.0, running=0, waiting=3)
    look(10.0, running=1, waiting=2)  # a task of the others began, so the time begins anew
    look(11.0, running=0, waiting=2)
    look(30.9, running=0, waiting=2)
    with pytest.raises(ConfigError, match=r"2 workers .* every task slot .*; set workers=1"):
        look(31.0, running=0, waiting=2)


@pytest.mark.rule("FLEET-4.4")
def test_with_no_spare_slots_others_may_wait():
    table = begun(0, spare=0)

    for now in (0.0, 2 * ADMISSION):
        table.reported(beat(0), now)
        table.check(Slots(running=0, waiting=3), now)


@pytest.mark.rule("FLEET-4.2")
@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[4]"}, 4),
        ({"spark.master": "local[4, 3]"}, 4),
        ({"spark.master": "local[4]", "spark.task.cpus": "2"}, 2),
        ({"spark.master": "local-cluster[2,3,1024]", "spark.task.cpus": "2"}, 2),
        ({"spark.master": "spark://h:7077", "spark.cores.max": "6"}, 6),
        ({"spark.executor.instances": "3", "spark.executor.cores": "2"}, 6),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "5",
                "spark.executor.instances": "3",
                "spark.executor.cores": "2",
            },
            10,
        ),
        ({"spark.executor.instances": "3"}, None),
        ({"spark.master": "spark://h:7077"}, None),
    ],
)
def test_settings_bound_the_task_slots(settings, slots):
    bound = max_slots(settings)

    assert (bound and bound[0]) == slots


@pytest.mark.rule("FLEET-4.1")
def test_a_fleet_without_spare_slots_is_refused():
    settings = {"spark.master": "local[2]"}

    check_spare(settings, 1, 1)
    check_spare(settings, 2, 0)
    check_spare({}, 100, 1)
    with pytest.raises(
        ConfigError,
        match=r"2 workers and spare=1 .* need 3 task slots, and Spark has 2 "
        r"\(spark.master=local\[2\]\); set workers=1 or less",
    ):
        check_spare(settings, 2, 1)
