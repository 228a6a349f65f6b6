import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, pathOf } from "../src/router.ts";

test("a path below a prefix opens its page", () => {
  assert.equal(parse("/ops/tasks/", "", "/ops/tasks/").page, "overview");
  assert.equal(parse("/ops/tasks", "", "/ops/tasks/").page, "overview");
  const task = parse("/ops/tasks/tasks/018f2c9e", "?tab=errors", "/ops/tasks/");
  assert.deepEqual([task.page, task.id, task.query.get("tab")], ["task", "018f2c9e", "errors"]);
});

test("names are encoded in paths and decoded from them", () => {
  for (const name of ["deliver", "gpu:shop.tasks.send", "a/b", "ä ö", "100%", "<b>"]) {
    const found = parse(`/${pathOf("sources", name)}`, "", "/");
    assert.deepEqual([found.page, found.id], ["source", name]);
  }
});

test("a filter survives the address bar", () => {
  const path = pathOf("tasks", "", { q: 'source:deliver label:"a b" 50%', state: "" });
  const url = new URL(`http://host/${path}`);
  assert.equal(parse(url.pathname, url.search, "/").query.get("q"), 'source:deliver label:"a b" 50%');
  assert.equal(url.searchParams.has("state"), false);
});

test("other paths are missing", () => {
  for (const path of ["/nothing", "/tasks/a/b", "/sources/%E0%A4%A", "/elsewhere/tasks"]) {
    assert.equal(parse(path, "", path.startsWith("/elsewhere") ? "/ops/" : "/").page, "missing");
  }
});
