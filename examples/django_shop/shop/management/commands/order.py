import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from shop.models import Order
from shop.tasks import charge


class Command(BaseCommand):
    help = "Creates an order, and waits until its task has ended."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("customer")

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            order = Order.objects.create(customer=options["customer"])
            result = charge.enqueue(order.id)
        deadline = time.monotonic() + 60
        while not result.is_finished and time.monotonic() < deadline:
            time.sleep(0.05)
            result.refresh()
        self.stdout.write(result.return_value)
