"""Safeguards that random worlds do not miss, because other safeguards repair the damage.

Some of them only save messages; others protect against hostile peers. A world without such a
safeguard ends well. So the test of the rule runs without the safeguard, and must fail.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.ablation import manager_side, worker_side
from tests.property import test_network_property as network
from tests.simulation import test_idle as idle
from tests.simulation import test_regressions as regressions
from tests.unit.core.device import test_device as device
from tests.unit.core.manager import test_beats as beats
from tests.unit.core.manager import test_claims as claims
from tests.unit.core.manager import test_leaving as leaving
from tests.unit.core.manager import test_manager as jobs
from tests.unit.core.manager import test_manager_limits as limits
from tests.unit.core.manager import test_manager_peers as peers
from tests.unit.core.manager import test_requeue as requeue
from tests.unit.core.manager import test_shares as shares
from tests.unit.core.worker import test_worker_handshake as handshake
from tests.unit.core.worker import test_worker_liveness as liveness
from tests.unit.core.worker import test_worker_locks as locks
from tests.unit.core.worker import test_worker_streams as streams
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import ScriptedWorker

Switch = Callable[[pytest.MonkeyPatch], None]

RULES: list[tuple[Switch, Callable[..., None], dict[str, Any]]] = [
    *(
        (
            manager_side.claims,
            claims.test_a_message_over_another_route_is_not_acted_on_and_the_holder_is_asked,
            {"epoch": claims.LAST, "what": what},
        )
        for what in ("ready", "give", "done", "ping", "bye")
    ),
    *(
        (
            manager_side.claims,
            claims.test_a_managers_message_over_another_link_is_not_acted_on,
            {"epoch": claims.LAST, "what": what},
        )
        for what in ("wake", "pong", "cancel")
    ),
    (
        manager_side.restart_of_the_holder,
        claims.test_a_peer_replaces_itself_over_its_own_route_by_a_greater_epoch_only,
        {},
    ),
    (manager_side.answers, claims.test_a_manager_answers_a_challenge, {}),
    (manager_side.answers, claims.test_a_worker_answers_a_challenge, {}),
    (
        manager_side.answers,
        claims.test_a_worker_answers_a_challenge_over_every_route,
        {"epoch": 2},
    ),
    (
        manager_side.refusal,
        claims.test_a_claim_fails_when_the_holder_answers,
        {"epoch": claims.LAST},
    ),
    (manager_side.failed_claims, claims.test_a_managers_claim_fails_when_the_holder_answers, {}),
    (
        manager_side.admission,
        claims.test_another_epoch_takes_over_when_the_holder_is_not_there,
        {"how": "silence", "epoch": 4},
    ),
    (
        manager_side.admission,
        claims.test_a_manager_elsewhere_takes_over_when_the_holder_is_not_there,
        {"how": "silence", "epoch": 0},
    ),
    (
        manager_side.goodbye_of_a_claim,
        claims.test_a_goodbye_over_a_new_route_counts_when_the_old_route_is_lost,
        {},
    ),
    *(
        (manager_side.route_of_reports, test, {"code": code})
        for code in ("unreachable", "misrouted", "superseded")
        for test in (
            claims.test_a_route_is_lost_by_the_report_of_a_node_on_it_only,
            claims.test_a_manager_is_lost_by_the_report_of_a_node_on_its_route_only,
        )
    ),
    (
        manager_side.reports_of_rivals,
        claims.test_no_message_stops_a_manager,
        {"to": (7, b"m")},
    ),
    (worker_side.one_refusal, claims.test_one_of_two_managers_does_not_stop_a_worker, {}),
    (
        worker_side.every_refusal,
        claims.test_a_worker_that_no_manager_serves_stops_after_three_intervals,
        {"known": False},
    ),
    (
        manager_side.ready_dedupe,
        jobs.test_a_repeated_or_older_ready_is_ignored_and_a_newer_one_replaces,
        {},
    ),
    (manager_side.fencing, jobs.test_a_result_of_an_old_attempt_is_not_accepted, {}),
    (
        manager_side.session_of_results,
        peers.test_a_number_of_another_session_is_answered_with_the_current_one,
        {},
    ),
    (manager_side.expiry, peers.test_a_silent_worker_is_given_up, {}),
    (
        manager_side.reconciliation,
        peers.test_a_job_missing_from_the_held_list_is_lost_when_its_take_was_received,
        {},
    ),
    (manager_side.reconciliation, peers.test_an_idle_worker_holds_nothing, {}),
    (manager_side.goodbye, peers.test_bye_gives_the_leases_back_at_once, {}),
    (
        manager_side.takes_that_never_left,
        peers.test_bye_ends_resending_and_an_unsent_take_is_no_worker_loss,
        {},
    ),
    (manager_side.echo_after_goodbye, peers.test_bye_gives_the_leases_back_at_once, {}),
    (
        manager_side.replay_by_manager,
        peers.test_answers_follow_the_latest_route_and_the_stream_is_sent_again,
        {},
    ),
    (
        manager_side.again_to_manager,
        peers.test_unacknowledged_messages_are_sent_again_on_request_and_when_old,
        {},
    ),
    (manager_side.lock_dedupe, jobs.test_a_lock_is_served_once, {}),
    (
        manager_side.hold_end,
        jobs.test_a_held_give_is_served_first_and_answered_before_its_hold_ends,
        {},
    ),
    (manager_side.wake_bound, jobs.test_one_job_wakes_one_worker_and_each_timeout_doubles, {}),
    (manager_side.wake_timeout, jobs.test_one_job_wakes_one_worker_and_each_timeout_doubles, {}),
    (
        manager_side.cancelling,
        jobs.test_a_cancelled_job_whose_worker_dies_is_not_given_again,
        {},
    ),
    (
        manager_side.cancelling,
        jobs.test_a_job_that_is_lost_during_its_cancelling_ends_cancelled,
        {},
    ),
    (
        manager_side.lost_while_cancelling,
        jobs.test_a_cancelled_job_whose_worker_dies_is_not_given_again,
        {},
    ),
    (manager_side.attempts_of_leases, jobs.test_a_result_of_an_old_attempt_is_not_accepted, {}),
    (manager_side.attempts_of_leases, jobs.test_progress_of_an_old_attempt_is_ignored, {}),
    (
        manager_side.max_worker_losses,
        jobs.test_a_job_that_was_lost_too_often_ends_as_lost_with_a_reason,
        {},
    ),
    (
        manager_side.leaving_again,
        leaving.test_a_worker_that_takes_jobs_and_leaves_is_one_worker_loss_of_each_job,
        {"how": "BYE"},
    ),
    (
        manager_side.leaving_again,
        leaving.test_a_job_that_its_worker_takes_away_again_and_again_is_given_ever_later,
        {},
    ),
    (manager_side.fair_share, shares.test_a_large_window_leaves_the_others_their_share, {}),
    (
        manager_side.lease_bound,
        shares.test_a_worker_gets_no_more_leases_than_its_capacity_whatever_it_wants,
        {},
    ),
    (
        manager_side.give_bounds,
        limits.test_the_memory_that_one_worker_takes_at_a_manager_is_bounded,
        {},
    ),
    (
        manager_side.refusals_are_free,
        jobs.test_a_refusal_is_no_worker_loss_and_waits_for_the_next_report_of_the_worker,
        {},
    ),
    (
        manager_side.refusal_memory,
        jobs.test_a_refusal_is_no_worker_loss_and_waits_for_the_next_report_of_the_worker,
        {},
    ),
    (
        manager_side.refusal_backoff,
        jobs.test_a_worker_that_keeps_refusing_is_asked_less_and_less_often,
        {},
    ),
    *(
        (switch, liveness.test_a_worker_that_was_stopped_asks_before_it_begins_a_job, {})
        for switch in (worker_side.late_start, worker_side.early_answer, worker_side.any_answer)
    ),
    (
        worker_side.jobs_stay_on_lanes,
        liveness.test_jobs_that_wait_on_a_lane_are_recalled_after_a_pause,
        {},
    ),
    (worker_side.ack_bound, streams.test_an_ack_for_a_number_never_sent_is_ignored, {}),
    (
        worker_side.lock_timeout,
        locks.test_a_lock_without_answer_is_released_5_s_after_its_hold,
        {"hold": 0.0},
    ),
    (
        worker_side.late_take,
        locks.test_a_take_whose_lock_is_gone_is_refused_without_room_each_job_of_it,
        {},
    ),
    (
        worker_side.late_take_beside_a_lock,
        locks.test_a_late_take_runs_on_the_place_of_a_newer_lock_of_its_manager,
        {},
    ),
    (worker_side.lost_give, locks.test_a_give_that_was_lost_is_found_by_the_next_pong, {}),
    (
        worker_side.held_already,
        locks.test_a_job_that_is_held_already_is_not_run_twice,
        {"attempt": 1},
    ),
    (
        worker_side.ready_backoff,
        idle.test_an_idle_worker_wakes_for_its_pings_and_its_backoff_only,
        {"managers": 1},
    ),
    (
        worker_side.pending_wake,
        network.test_no_manager_starves,
        {"managers": 3, "hold": 0.0, "seconds": 1.0, "window": 0},
    ),
    (
        worker_side.turns,
        handshake.test_freed_places_go_to_the_manager_served_least_recently,
        {},
    ),
    (
        worker_side.byte_limit,
        streams.test_too_many_kept_results_close_the_room_until_they_are_acknowledged,
        {},
    ),
    (worker_side.resend_by_worker, streams.test_a_result_unacknowledged_for_3_s_is_sent_again, {}),
    (
        worker_side.replay_by_worker,
        streams.test_a_new_route_gets_all_that_is_not_acknowledged,
        {},
    ),
    (
        worker_side.again_to_worker,
        streams.test_again_sends_all_that_is_not_acknowledged_in_order,
        {},
    ),
    (
        worker_side.message_of_old_session,
        streams.test_a_message_of_an_older_session_is_dropped,
        {},
    ),
    (
        worker_side.forgotten_number,
        regressions.test_a_session_that_was_forgotten_is_not_entered_again,
        {"ack": 0},
    ),
    (worker_side.expiry, streams.test_results_are_dropped_after_expire_of_silence, {}),
    (
        worker_side.withdrawn_lock,
        locks.test_a_withdrawn_lock_is_released_5_s_after_its_withdrawal,
        {},
    ),
    (
        manager_side.order_of_lost_jobs,
        requeue.test_lost_jobs_stand_first_in_the_order_of_their_submission,
        {},
    ),
    (
        manager_side.lost_jobs_wait,
        requeue.test_lost_jobs_stand_first_in_the_order_of_their_submission,
        {},
    ),
    (
        worker_side.first_number,
        streams.test_a_worker_enters_a_session_at_its_number_1,
        {"number": 1, "ack": 0, "enters": True},
    ),
    (manager_side.beats, beats.test_beats_keep_the_leases_of_a_worker_that_does_not_run, {}),
    (
        manager_side.beat_keys,
        beats.test_a_beat_of_another_counts_for_nobody,
        {"changes": {"fields": {"BEAT": 1}}},
    ),
    (manager_side.beat_bound, beats.test_beats_keep_leases_for_a_bounded_time, {}),
    (manager_side.beat_answers, beats.test_a_beat_is_answered_over_the_route_of_the_worker, {}),
    (worker_side.loop_check, device.test_a_message_that_was_here_before_is_dropped, {}),
    (worker_side.hop_limit, device.test_sixteen_devices_are_the_limit, {}),
]
"""The switch, the test of the rule (must fail with the switch), and the test's parameters."""


MISSED = (AssertionError, ValueError, IndexError)
"""How a test fails. A ValueError counts: the test unpacks one message and there is none."""


def play(test: Callable[..., None], parameters: dict[str, Any]) -> None:
    """Run a test with its parameters, and give it machines in place of its fixtures."""
    module = sys.modules[test.__module__]
    known: dict[str, Any] = dict(parameters)
    if module in (jobs, peers, shares, limits, leaving, requeue):
        known["manager"] = ManagerMachine(
            ManagerSettings(identity=b"m", epoch=7), least_recently_used
        )
        known["worker"] = ScriptedWorker(known["manager"])
    elif module is beats:
        known["manager"] = beats.make()
        known["worker"] = beats.announced(known["manager"])
    elif module is claims:
        known["manager"], known["worker"] = claims.make_manager(), claims.make_worker()
        if "holder" in inspect.signature(test).parameters:
            known["holder"] = claims.make_holder(known["manager"])
        if "serving" in inspect.signature(test).parameters:
            known["serving"] = claims.make_serving(known["worker"])
    elif module is liveness:
        known["worker"] = liveness.make()
        known["manager"] = liveness.met(known["worker"])
    elif module is streams:
        known["worker"] = streams.make()
        known["manager"] = ScriptedManager(known["worker"])
        known["manager"].meet()
    elif module is device:
        known["device"] = DeviceMachine(DeviceSettings(identity=b"d", epoch=5, upstreams=3))
    test(**{key: known[key] for key in inspect.signature(test).parameters})


def name(row: tuple[Switch, Callable[..., None], dict[str, Any]]) -> str:
    side = row[0].__module__.rpartition(".")[2].removesuffix("_side")
    return f"{side}'s {row[0].__name__}-{row[1].__name__.removeprefix('test_')}"


@pytest.mark.parametrize(("switch", "test", "parameters"), RULES, ids=map(name, RULES))
def test_rule_tests_notice_that_a_safeguard_is_off(switch, test, parameters):
    play(test, parameters)
    with pytest.MonkeyPatch.context() as patch:
        switch(patch)
        with pytest.raises(MISSED):
            play(test, parameters)
