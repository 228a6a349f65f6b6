"""Time: the clock protocol, the system clock, a manual clock, precise timers."""
