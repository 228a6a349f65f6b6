"""A chain, a chord and a graph of tasks; a member that fails, and a retry of the flow.

python examples/chain_and_chord.py
"""

from __future__ import annotations

from onthedot import App, TaskFailed, group

app = App("chords", store="memory://")
stock = {"apple": 3, "pear": 5}


@app.task
async def count(fruit: str) -> int:
    return stock[fruit]


@app.task
async def double(number: int) -> int:
    return number * 2


@app.task
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
async def compare(left: int, right: int) -> str:
    return f"{left} and {right}"


def main() -> None:
    with app.background():
        chain = count.s("apple") | double | double
        print("chain:", chain.delay().result(timeout=5))

        chord = group(count.s(fruit) for fruit in stock) | total
        print("chord:", chord.delay().result(timeout=5))

        apples = count.s("apple")  # runs once, and has two followers
        graph = compare.s(apples.result, double.s(apples.result).result)
        print("graph:", graph.delay().result(timeout=5))

        flow = (group(count.s(fruit) for fruit in ("apple", "plum")) | total).delay()
        try:
            flow.result(timeout=5)
        except TaskFailed as error:
            print("failed:", error.error_type, error.message)
        stock["plum"] = 7
        print("runs again:", flow.retry())
        print("retried:", flow.result(timeout=5), flow.progress())


if __name__ == "__main__":
    main()
