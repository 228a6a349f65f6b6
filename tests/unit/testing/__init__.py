"""``onthedot.testing``: time goes only where the test turns it, and nothing stays alive."""
