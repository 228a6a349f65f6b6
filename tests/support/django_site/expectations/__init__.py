"""An app of Django: tasks, and what Django documents about the API of a backend."""
