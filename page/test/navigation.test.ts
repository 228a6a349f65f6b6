import assert from "node:assert/strict";
import { test } from "node:test";
import { ENTRIES, isCurrent, visibleEntries } from "../src/navigation.ts";

const ALL = ENTRIES.flatMap(({ feature }) => (feature === undefined ? [] : [feature]));

test("each page has a key of its own", () => {
  assert.equal(new Set(ENTRIES.map(({ key }) => key)).size, ENTRIES.length);
  assert.equal(new Set(ENTRIES.map(({ page }) => page)).size, ENTRIES.length);
});

test("a page that the store lacks is hidden, the others keep their order", () => {
  assert.deepEqual(visibleEntries(ALL), ENTRIES);
  for (const lacking of ALL) {
    const left = visibleEntries(ALL.filter((feature) => feature !== lacking));
    assert.deepEqual(left, ENTRIES.filter(({ feature }) => feature !== lacking));
  }
  assert.ok(visibleEntries(undefined).every(({ feature }) => feature === undefined));
});

test("the page of one source belongs to the list of sources", () => {
  const current = (page: Parameters<typeof isCurrent>[1]) => ENTRIES.filter((entry) => isCurrent(entry, page)).map(({ page }) => page);
  assert.deepEqual(current("source"), ["sources"]);
  assert.deepEqual(current("tasks"), ["tasks"]);
  assert.deepEqual(current("login"), []);
});
