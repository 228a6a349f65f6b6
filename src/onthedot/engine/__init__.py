"""The engine: claims tasks, runs them, settles them. It sees stores and executors only through their contracts."""
