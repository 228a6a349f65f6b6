import assert from "node:assert/strict";
import { test } from "node:test";
import { age, bytes, clock, count, duration, parseTime, percent, rate, shortCount, tinyCount, utc } from "../src/format.ts";

test("counts are grouped, and short above ten thousand", () => {
  assert.equal(count(1204), "1,204");
  assert.equal(shortCount(1882), "1,882");
  assert.equal(shortCount(18_220), "18k");
  assert.equal(shortCount(1_234_567), "1.2M");
});

test("a badge has at most four letters", () => {
  const cases: [number, string][] = [[9, "9"], [999, "999"], [1882, "1k"], [999_999, "999k"], [12_345_678, "12m"]];
  for (const [number, text] of cases) assert.equal(tinyCount(number), text);
});

test("a duration has at most two units", () => {
  const cases: [number, string][] = [
    [0, "0 ms"], [0.4, "<1 ms"], [3, "3 ms"], [999.6, "1.0 s"], [1200, "1.2 s"], [9960, "10 s"], [59_700, "1 min"],
    [250_000, "4 min 10 s"], [7_500_000, "2 h 5 min"], [90_000_000, "1 d 1 h"], [-1200, "−1.2 s"],
  ];
  for (const [ms, text] of cases) assert.equal(duration(ms), text);
});

test("an age has one unit and is never negative", () => {
  assert.equal(age(-50), "0 s");
  assert.equal(age(59_999), "59 s");
  assert.equal(age(3_599_000), "59 min");
  assert.equal(age(100_000_000), "27 h");
  assert.equal(age(300_000_000), "3 d");
});

test("small rates and shares do not look like zero", () => {
  assert.equal(rate(0), "0");
  assert.equal(rate(0.01), "<0.1");
  assert.equal(rate(1203.6), "1,204");
  assert.equal(percent(0), "0 %");
  assert.equal(percent(0.0001), "<0.1 %");
  assert.equal(percent(0.041), "4.1 %");
});

test("a time of another day names the day", () => {
  const now = Date.UTC(2026, 10, 18, 3, 7);
  assert.equal(clock(Date.UTC(2026, 10, 18, 3, 4, 11), now, "UTC"), "03:04:11");
  assert.equal(clock(Date.UTC(2026, 10, 17, 23, 4, 11), now, "UTC"), "17 Nov 23:04:11");
  assert.equal(utc(now), "2026-11-18 03:07:00 UTC");
});

test("bytes use decimal units", () => {
  assert.equal(bytes(999), "999 B");
  assert.equal(bytes(212_000_000), "212 MB");
  assert.equal(bytes(1_200_000), "1.2 MB");
});

test("a time that cannot be read is missing", () => {
  assert.equal(parseTime(null), null);
  assert.equal(parseTime("soon"), null);
  assert.equal(parseTime("1970-01-01T00:00:01.000Z"), 1000);
});
