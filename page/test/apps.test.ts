import assert from "node:assert/strict";
import { test } from "node:test";
import { Api } from "../src/api.ts";
import { parse, Router, withQuery } from "../src/router.ts";

test("the app of a tab is in every address of the page and of the API", () => {
  const router = new Router("/ops/", "/ops/tasks", "?q=state%3Afailed&app=mail");
  assert.equal(router.app, "mail");
  assert.equal(router.location.value.query.toString(), "q=state%3Afailed");
  assert.equal(router.address("tasks?q=a"), "/ops/tasks?q=a&app=mail");
  assert.equal(router.address("workers"), "/ops/workers?app=mail");
  assert.equal(router.address("", "a b"), "/ops/?app=a+b");
  const api = new Api(router.base, router.app);
  assert.equal(api.address("/tasks", { q: "x" }), "/ops/api/v1/tasks?app=mail&q=x");
  assert.equal(withQuery(api.address("/changes"), "watch=overview"), "/ops/api/v1/changes?app=mail&watch=overview");
});

test("a page that names no app is one of the first app", () => {
  const router = new Router("/", "/tasks", "");
  assert.equal(router.app, "");
  assert.equal(router.address("tasks"), "/tasks");
  assert.equal(new Api("/").address("/status"), "/api/v1/status");
  assert.equal(parse("/tasks", "?app=mail", "/").query.size, 0);
});
