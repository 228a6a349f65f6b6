"""A killed process is started again soon; code that cannot run is started ever less often."""

from __future__ import annotations

from onthedot.supervisor.restart_pause import RestartPause


def test_pause_doubles_up_to_half_a_minute_for_processes_that_exit_young() -> None:
    pause = RestartPause()
    pauses = [pause.next(3, was_killed=False) for _ in range(12)]
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses[-2:] == [30.0, 30.0]


def test_killed_processes_are_never_waited_for_longer_than_a_second() -> None:
    pause = RestartPause()
    assert [pause.next(0.5, was_killed=True) for _ in range(60)][-1] == 1.0


def test_crash_loop_that_is_killed_once_continues_to_back_off() -> None:
    pause = RestartPause()
    before = [pause.next(0.5, was_killed=False) for _ in range(8)]
    assert pause.next(0.5, was_killed=True) == 1.0
    assert 1.0 < pause.next(0.5, was_killed=False) < before[-1]


def test_process_that_has_lived_for_a_while_resets_the_pause() -> None:
    pause = RestartPause()
    for _ in range(8):
        pause.next(0.5, was_killed=False)
    assert pause.next(60, was_killed=False) == 0.1
