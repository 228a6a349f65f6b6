"""Work of several runs or tasks: linked calls and how results pass between them, durable steps, waits and signals."""
