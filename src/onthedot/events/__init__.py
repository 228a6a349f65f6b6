"""Events: an outbox in the store, a relay to the bus, agents that handle events, and waits for their results."""
