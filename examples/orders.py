"""An order and its task in one transaction: both are stored, or neither. The payment and its end, likewise.

python examples/orders.py
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from onthedot import App, current_task

folder = TemporaryDirectory()
file = Path(folder.name, "orders.db")
app = App("orders", store=f"sqlite:///{file}")


@app.task
async def pay(order: int) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE orders SET paid = paid + 1 WHERE id = ?", (order,))
        await current_task().complete("paid", connection=db)  # settled by the commit of the payment


def create(db: sqlite3.Connection, order: int, in_stock: bool) -> None:
    with db:
        db.execute("INSERT INTO orders (id) VALUES (?)", (order,))
        pay.options(connection=db, uuid=f"pay-{order}").delay(order)
        if not in_stock:
            raise LookupError(f"order {order} is not in stock")


def main() -> None:
    with closing(sqlite3.connect(file)) as db, app.background():
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER DEFAULT 0)")
        create(db, 1, in_stock=True)
        try:
            create(db, 2, in_stock=False)
        except LookupError as error:
            print(error)
        print("order 1:", pay.handle("pay-1").result(timeout=10))
        print("orders:", db.execute("SELECT id, paid FROM orders").fetchall())
        print("tasks:", [task.uuid for task in app.sync.find()])


if __name__ == "__main__":
    main()
    folder.cleanup()
