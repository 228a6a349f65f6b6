"""Real servers for tests, one file each: a URL in the environment, a wheel, a program on PATH, else a skip."""
