"""Programs of `./dev bench worker`: each is run by the command of its own project.

Run as a module, a program fills its queue. ``BENCH_STORE`` is the store, ``BENCH_COUNT`` the number of tasks, and
``BENCH_RESULT`` the file for the result.
"""
