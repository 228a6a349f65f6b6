import assert from "node:assert/strict";
import { test } from "node:test";
import { type ShownAction, withAction, withoutAction } from "../src/actions.ts";
import type { BulkAction } from "../src/api.ts";

function action(id: string, done: number, state = "running"): BulkAction {
  return {
    id, done, state, action: "retry tasks", filter: "", found: 10, changed: done, rate: 5, user: "ana", reason: "",
    started_at: "2026-01-01T00:00:00Z", error: "",
  };
}

function brief(shown: readonly ShownAction[]): string[] {
  return shown.map(({ id, done, state, origin }) => `${id} ${done} ${state} ${origin}`);
}

test("an action of another tab is shown while it runs, and its end is shown", () => {
  let shown = withAction([], action("a", 0));
  shown = withAction(shown, action("a", 4));
  assert.deepEqual(brief(shown), ["a 4 running other"]);
  assert.deepEqual(brief(withAction(shown, action("a", 10, "done"))), ["a 10 done other"]);
});

test("an action of another tab that has ended already is not shown", () => {
  assert.deepEqual(withAction([], action("a", 10, "done")), []);
});

test("an action of this tab is shown although it has ended, and until it is closed", () => {
  const shown = withAction([], action("a", 10, "done"), "own");
  assert.deepEqual(brief(shown), ["a 10 done own"]);
  assert.deepEqual(withoutAction(shown, "a"), []);
});

test("an action stays that of this tab when a message comes before or after the answer", () => {
  const before = withAction(withAction([], action("a", 2)), action("a", 0), "own");
  assert.deepEqual(brief(before), ["a 2 running own"]);
  assert.deepEqual(brief(withAction(before, action("a", 4))), ["a 4 running own"]);
});

test("news that were overtaken change nothing", () => {
  const shown = withAction([], action("a", 10, "done"), "own");
  assert.deepEqual(brief(withAction(shown, action("a", 10))), ["a 10 done own"]);
  assert.deepEqual(brief(withAction(shown, action("a", 7))), ["a 10 done own"]);
});
