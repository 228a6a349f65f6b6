"""Real servers for tests: by the environment, from a wheel or a download, from PATH, else a skip that says so."""
