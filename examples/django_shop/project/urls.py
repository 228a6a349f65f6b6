from django.contrib import admin
from django.urls import path
from shop.views import create_order, show_order

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders", create_order),
    path("orders/<str:uuid>", show_order),
]
