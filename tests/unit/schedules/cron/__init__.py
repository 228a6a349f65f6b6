"""Cron against a brute-force oracle."""
