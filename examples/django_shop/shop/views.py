from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.tasks import TaskResultStatus
from django.tasks.exceptions import TaskResultDoesNotExist

from shop.models import Order
from shop.tasks import charge


def create_order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():  # JOIN: the order and its task are committed together
        order = Order.objects.create(customer=request.GET.get("customer", "ann"))
        result = charge.enqueue(order.id)
    return JsonResponse({"order": order.id, "task": result.id}, status=202)


def show_order(request: HttpRequest, uuid: str) -> JsonResponse:
    try:
        result = charge.get_result(uuid)
    except TaskResultDoesNotExist:
        return JsonResponse({"error": "there is no such task"}, status=404)
    answer = {"status": result.status}
    if result.status == TaskResultStatus.SUCCESSFUL:
        answer["result"] = result.return_value
    return JsonResponse(answer)
