import assert from "node:assert/strict";
import { test } from "node:test";
import { pathOfItem } from "../src/attention.ts";

const show = (path: string) => ({ label: "show", method: "GET", path, body: null });

function path(kind: string, more: Partial<Parameters<typeof pathOfItem>[0]> = {}): string | null {
  return pathOfItem({ kind, source: null, group: null, action: null, ...more });
}

test("a view of the API leads to the page of the same name", () => {
  assert.equal(path("no_worker", { source: "deliver", action: show("/tasks?q=source:deliver%20state:ready") }), "tasks?q=source:deliver%20state:ready");
  assert.equal(path("outbox_failed", { action: show("/outbox") }), "outbox");
});

test("a failure group leads to its tasks", () => {
  assert.equal(path("failures", { source: "deliver", group: "1f3a" }), "tasks?q=group%3A1f3a+state%3Afailed");
});

test("a schedule leads to its row, also if its name has a percent sign", () => {
  assert.equal(path("schedule_late", { source: "deliver", action: show("/schedules/old_clean") }), "schedules?open=old_clean");
  assert.equal(path("schedule_late", { action: show("/schedules/100%") }), "schedules?open=100%25");
});

test("an item without a view leads to the page of its kind, or to its source", () => {
  const resume = { label: "resume", method: "POST", path: "/sources/deliver/resume", body: null };
  assert.equal(path("paused", { source: "deliver", action: resume }), "sources/deliver");
  assert.equal(path("outbox_late"), "outbox");
  assert.equal(path("schedule_orphan", { source: "deliver" }), "schedules");
  assert.equal(path("dead_workers"), "workers");
  assert.equal(path("clock"), null);
  assert.equal(path("clock", { action: show("/nothing") }), null);
});
