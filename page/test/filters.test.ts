import assert from "node:assert/strict";
import { test } from "node:test";
import { completions, terms, valueOf, withValue } from "../src/filters.ts";

test("quotes keep a term together", () => {
  assert.deepEqual(terms('source:deliver label:"a b" x'), ["source:deliver", 'label:"a b"', "x"]);
  assert.equal(valueOf('label:"a b"', "label"), "a b");
});

test("a tab changes the state and nothing else", () => {
  assert.equal(withValue("source:deliver state:failed acme", "state", "ready"), "source:deliver acme state:ready");
  assert.equal(withValue("source:deliver state:failed", "state", ""), "source:deliver");
  assert.equal(withValue("", "error", 'said "no"'), 'error:"said \\"no\\""');
});

test("the box completes keys and known values", () => {
  assert.deepEqual(completions("so", {}), ["source:"]);
  assert.deepEqual(completions("", {}), []);
  assert.deepEqual(completions("acme state:f", { state: ["failed", "ready"] }), ["acme state:failed"]);
});
