"""What a user meets first: their own project, pytest, and a fixture."""
