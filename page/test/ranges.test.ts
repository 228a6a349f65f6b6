import assert from "node:assert/strict";
import { test } from "node:test";
import { axisTime } from "../src/format.ts";
import { marksWithin, RANGES, rangeOf, sinceOf, STEPS } from "../src/ranges.ts";

const HOUR = 3_600_000;

test("the address holds the range, and one hour without it", () => {
  for (const range of RANGES) assert.equal(rangeOf(new URLSearchParams({ since: sinceOf(range) ?? "" })), range);
  assert.equal(sinceOf("1h"), undefined);
  for (const text of ["", "since=2h", "since=toString"]) assert.equal(rangeOf(new URLSearchParams(text)), "1h");
});

test("no range has more points than the server returns", () => {
  const hours = { live: 1 / 60, "1h": 1, "6h": 6, "24h": 24, "7d": 168, "62d": 1488 };
  for (const range of RANGES) assert.ok((hours[range] * 3600) / STEPS[range] <= 1500, range);
});

test("a release of the span that goes on is drawn at its beginning", () => {
  const at = [0, 3600, 7200];
  const marks = [{ at: -1, name: "old" }, { at: 0, name: "a" }, { at: 5000, name: "b" }, { at: 9000, name: "c" }, { at: 10_800, name: "d" }];
  assert.deepEqual(marksWithin(marks, at), [{ at: 0, name: "a", place: 0 }, { at: 5000, name: "b", place: 5000 }, { at: 9000, name: "c", place: 7200 }]);
  assert.deepEqual(marksWithin(marks, []), []);
});

test("an axis has seconds in a minute, days in a week", () => {
  const at = Date.UTC(2026, 10, 18);
  assert.equal(axisTime(at + 5000, 60_000, "UTC"), "00:00:05");
  assert.equal(axisTime(at, 24 * HOUR, "UTC"), "00:00");
  assert.equal(axisTime(at, 168 * HOUR, "UTC"), "18 Nov");
  assert.equal(axisTime(at + 12 * HOUR, 168 * HOUR, "UTC"), "12:00");
});
