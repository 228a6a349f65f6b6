"""What can be seen from outside: logs now, metrics and traces with their first users."""
