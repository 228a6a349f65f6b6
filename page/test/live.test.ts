import assert from "node:assert/strict";
import { test } from "node:test";
import { atMostEvery, countsByState, LiveStream, newestStates } from "../src/live.ts";
import type { Refusal, Source } from "../src/live.ts";

class Stream implements Source {
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  readyState = 0;
  readonly url: string;
  private readonly listeners = new Map<string, (event: { data: string; lastEventId: string }) => void>();

  constructor(url: string) {
    this.url = url;
  }
  addEventListener(type: string, listener: (event: { data: string; lastEventId: string }) => void): void {
    this.listeners.set(type, listener);
  }
  close(): void {
    this.readyState = 2;
  }
  accept(): void {
    this.readyState = 1;
    this.onopen?.();
  }
  send(type: string, data: unknown, lastEventId = ""): void {
    this.listeners.get(type)?.({ data: JSON.stringify(data), lastEventId });
  }
  refuse(): void {
    this.readyState = 2;
    this.onerror?.();
  }
}

class World {
  time = 0;
  reason: Refusal = "unavailable";
  streams: Stream[] = [];
  received: [string, unknown][] = [];
  private timers: { id: number; at: number; action: () => void }[] = [];
  private ids = 0;

  readonly live = new LiveStream("/api/v1/changes", this, (name, data) => this.received.push([name, data]));

  open(url: string): Stream {
    const stream = new Stream(url);
    this.streams.push(stream);
    return stream;
  }
  now(): number {
    return this.time;
  }
  setTimeout(action: () => void, ms: number): number {
    this.ids += 1;
    this.timers.push({ id: this.ids, at: this.time + ms, action });
    return this.ids;
  }
  clearTimeout(id: number): void {
    this.timers = this.timers.filter((timer) => timer.id !== id);
  }
  async probe(): Promise<Refusal> {
    return this.reason;
  }
  async pass(ms: number): Promise<void> {
    await Promise.resolve();
    await Promise.resolve();
    this.time += ms;
    const due = this.timers.filter((timer) => timer.at <= this.time);
    this.timers = this.timers.filter((timer) => timer.at > this.time);
    for (const timer of due) timer.action();
  }
  get last(): Stream {
    return this.streams.at(-1)!;
  }
}

test("a change of view opens another stream, without the position of the old one", () => {
  const world = new World();
  world.live.follow("watch=overview");
  world.last.accept();
  world.last.send("counts", { ready: 1 }, "e.7");
  world.live.follow("watch=overview");
  assert.equal(world.streams.length, 1);
  world.live.follow("watch=task&uuid=a");
  assert.deepEqual(world.streams.map((stream) => stream.url), [
    "/api/v1/changes?watch=overview", "/api/v1/changes?watch=task&uuid=a",
  ]);
  world.streams[0]!.send("counts", { ready: 2 });
  assert.deepEqual(world.received, [["counts", { ready: 1 }]]);
});

test("a tab that is hidden for five seconds closes its stream, and fetches its view when it is shown", async () => {
  const world = new World();
  world.live.follow("watch=overview");
  world.last.accept();
  world.last.send("rates", {}, "e.42");
  world.live.setHidden(true);
  await world.pass(4000);
  world.live.setHidden(false);
  assert.equal(world.streams.length, 1);
  world.live.setHidden(true);
  await world.pass(5000);
  assert.equal(world.last.readyState, 2);
  assert.deepEqual(world.live.connection.value, { state: "hidden" });
  world.live.setHidden(false);
  assert.equal(world.last.url, "/api/v1/changes?watch=overview");
  world.last.accept();
  assert.deepEqual(world.received.at(-1), ["reset", null]);
});

test("a tab that is opened in the background has no stream until it is shown", () => {
  const world = new World();
  world.live.setHidden(true);
  world.live.follow("watch=overview");
  assert.equal(world.streams.length, 0);
  assert.deepEqual(world.live.connection.value, { state: "hidden" });
  world.live.setHidden(false);
  world.last.accept();
  assert.equal(world.live.connection.value.state, "live");
  assert.deepEqual(world.received, [["reset", null]]);
});

test("a refused stream is opened again after growing pauses", async () => {
  const world = new World();
  world.live.follow("watch=overview");
  world.last.refuse();
  assert.equal(world.live.connection.value.state, "reconnecting");
  await world.pass(1000);
  assert.equal(world.streams.length, 2);
  world.last.refuse();
  await world.pass(1000);
  assert.equal(world.streams.length, 2);
  await world.pass(1000);
  assert.equal(world.streams.length, 3);
  world.last.accept();
  assert.equal(world.live.connection.value.state, "live");
});

test("a page that is signed out does not try again by itself", async () => {
  const world = new World();
  world.reason = "signed_out";
  world.live.follow("watch=overview");
  world.last.refuse();
  await world.pass(60_000);
  assert.equal(world.live.connection.value.state, "signed_out");
  assert.equal(world.streams.length, 1);
  world.live.restart();
  assert.equal(world.streams.length, 2);
});

test("without a free stream the view is fetched every five seconds", async () => {
  const world = new World();
  world.reason = "too_many_streams";
  world.live.follow("watch=overview");
  world.last.refuse();
  await world.pass(0);
  assert.equal(world.live.connection.value.state, "polling");
  assert.deepEqual(world.received, [["reset", null]]);
  await world.pass(5000);
  assert.equal(world.streams.length, 2);
});

test("on a server without streams the view is fetched every two seconds, and no stream is opened again", async () => {
  const world = new World();
  world.reason = "absent";
  world.live.follow("watch=overview");
  world.last.refuse();
  await world.pass(0);
  assert.deepEqual(world.live.connection.value, { state: "polling", seconds: 2 });
  await world.pass(2000);
  await world.pass(2000);
  world.live.follow("watch=tasks");
  await world.pass(2000);
  assert.equal(world.received.length, 3);
  assert.equal(world.streams.length, 1);
});

test("of several transitions of a task the newest counts", () => {
  const at = "2026-11-18T00:00:00.000Z";
  const newest = newestStates([
    { at, uuid: "a", source: "s", state: "ready" }, { at, uuid: "b", source: "s", state: "ready" },
    { at, uuid: "a", source: "s", state: "succeeded" },
  ]);
  assert.deepEqual([...newest].map(([uuid, { state }]) => [uuid, state]), [["a", "succeeded"], ["b", "ready"]]);
});

test("the counts of all sources are added, and parked tasks are ready", () => {
  const counts = countsByState({ a: { ready: 1, parked: 2, failed: 1 }, b: { ready: 4, running: 5 } });
  assert.deepEqual(counts, { ready: 7, failed: 1, running: 5 });
});

test("a burst of requests becomes one at once and one later", async () => {
  const world = new World();
  let calls = 0;
  const ask = atMostEvery(() => 1000, () => (calls += 1), world);
  for (let i = 0; i < 50; i += 1) ask();
  assert.equal(calls, 1);
  await world.pass(1000);
  assert.equal(calls, 2);
  await world.pass(5000);
  assert.equal(calls, 2);
});
