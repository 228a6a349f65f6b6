import assert from "node:assert/strict";
import { test } from "node:test";
import { newRows } from "../src/new-rows.ts";

function list(uuids: string, cursor: string | null) {
  return { items: [...uuids].map((uuid) => ({ uuid })), cursor };
}

test("rows above and between the known ones are new", () => {
  assert.deepEqual(newRows(list("cba", "more"), list("edc", "more")), { n: 2, exact: true });
  assert.deepEqual(newRows(list("ace", null), list("abcde", null)), { n: 2, exact: true });
});

test("rows that move up from the next page are not new", () => {
  assert.deepEqual(newRows(list("abc", "more"), list("bcd", "more")), { n: 0, exact: true });
});

test("rows at the end of a list that was whole are new", () => {
  assert.deepEqual(newRows(list("abc", null), list("abcd", null)), { n: 1, exact: true });
});

test("a page of other rows says that there may be more", () => {
  assert.deepEqual(newRows(list("abc", "more"), list("xyz", "more")), { n: 3, exact: false });
  assert.deepEqual(newRows(list("abc", null), list("xyz", null)), { n: 3, exact: true });
});

test("rows that left the list leave nothing new", () => {
  assert.deepEqual(newRows(list("abc", null), list("", null)), { n: 0, exact: true });
});
