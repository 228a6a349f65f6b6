"""Commands of manage.py: Django finds them by the names of their modules."""
