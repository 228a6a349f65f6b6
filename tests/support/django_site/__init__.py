"""Parts of a Django project that tests copy into a folder, together with `examples/django_shop`."""
