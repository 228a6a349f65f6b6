"""A Django 6.1 project whose tasks onthedot runs.

pip install 'onthedot[django]'
python manage.py migrate
python manage.py onthedot worker &
python manage.py order ann        # enqueues a task in the transaction of an order, and waits for its result
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    execute_from_command_line(sys.argv)
