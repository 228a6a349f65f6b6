from django.tasks import task

from onthedot.integrations.django import get_app
from shop.models import Order

app = get_app()


@task(options={"max_retries": 3})
def charge(order: int) -> str:
    Order.objects.filter(id=order).update(paid=True)
    return f"order {order} is paid"


@task(queue_name="reports", priority=-50)
async def count_orders() -> int:
    return await Order.objects.acount()


@app.schedule("0 3 * * *")
def delete_unpaid() -> None:
    Order.objects.filter(paid=False).delete()
